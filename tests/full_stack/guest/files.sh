# fio on zones, with verification; then zonefs. Subsystem `small`: one namespace of small zones.

step connect
attach small 1
modprobe zonefs
modprobe mq-deadline
echo mq-deadline >/sys/block/${disk#/dev/}/queue/scheduler

# What each job writes (zones of it, bytes), and pieces of 64 KiB that are appended to a file in the first, and in the second go.
if in_soak; then
    write_zones=4z spread_zones=6z spread_size=24m read_size=2m mixed_zones=2z mixed_size=16m first=64 second=16
else
    write_zones=1z spread_zones=2z spread_size=2m read_size=256k mixed_zones=1z mixed_size=1m first=8 second=2
fi

zoned="--filename=$disk --zonemode=zbd --direct=1 --ioengine=libaio --group_reporting --verify_fatal=1"

step "sequential writes by two jobs, at most 6 open zones, verified"
quietly fio --name=write $zoned --rw=write --bs=64k --iodepth=8 --numjobs=2 --size=$write_zones --offset_increment=8z --max_open_zones=6 \
    --verify=crc32c --do_verify=1

step "random writes over zones, verified"
quietly fio --name=spread $zoned --rw=randwrite --bs=32k --iodepth=4 --offset=16z --size=$spread_zones --io_size=$spread_size --max_open_zones=6 \
    --verify=crc32c --do_verify=1

step "random reads by three jobs"
quietly fio --name=read $zoned --rw=randread --bs=4k --iodepth=8 --numjobs=3 --size=$write_zones --io_size=$read_size

step "overwriting with resets, reads in between"
quietly fio --name=mixed $zoned --rw=randrw --bs=16k --iodepth=4 --size=$mixed_zones --io_size=$mixed_size --max_open_zones=2

step "zone limits as zbd sees them"
section zbd zbd report -i $disk

step zonefs
quietly blkzone reset $disk
quietly mkzonefs -f $disk
mkdir -p /mnt/zonefs
mount -t zonefs $disk /mnt/zonefs
quietly dd if=/dev/urandom of=/tmp/noise bs=64k count=$first
for file in 0 1 5; do
    quietly dd if=/tmp/noise of=/mnt/zonefs/seq/$file bs=64k oflag=direct,append conv=notrunc
    quietly dd if=/tmp/noise of=/mnt/zonefs/seq/$file bs=64k count=$second oflag=direct,append conv=notrunc
done
umount /mnt/zonefs
mount -t zonefs $disk /mnt/zonefs
for file in 0 1 5; do
    [ "$(stat -c %s /mnt/zonefs/seq/$file)" = $(((first + second) * 65536)) ] || fail "file $file has $(stat -c %s /mnt/zonefs/seq/$file) bytes"
    cat /tmp/noise <(head -c $((second * 65536)) /tmp/noise) | cmp - /mnt/zonefs/seq/$file
done
truncate -s 0 /mnt/zonefs/seq/1
[ "$(stat -c %s /mnt/zonefs/seq/1)" = 0 ] || fail "truncation did not reset the zone"
refused dd if=/tmp/noise of=/mnt/zonefs/seq/2 bs=64k seek=1 count=1 oflag=direct conv=notrunc
umount /mnt/zonefs

section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 64 -o json

step disconnect
detach small
