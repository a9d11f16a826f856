# A server that is crowded, stopped in order, and killed, with a host that stays. Subsystem `a`: namespace 1 has small zones,
# namespace 2 is conventional.

step connect
attach a 2

verified="--direct=1 --ioengine=libaio --verify=crc32c --do_verify=1 --verify_fatal=1"
zones="--filename=$disk --zonemode=zbd --rw=write --bs=64k --iodepth=8 --max_open_zones=6"

if in_soak; then crowded_zones=2z random_size=4m stopped_zones=5z stops=3; else crowded_zones=1z random_size=512k stopped_zones=3z stops=1; fi

step "500 connections that say nothing"
ask crowd
quietly fio --name=crowded $verified $zones --size=$crowded_zones
quietly nvme reset $controller
wait_until "live again" is_live ${controller#/dev/}
quietly nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --hostnqn "$HOST_NQN" --hostid "$HOST_ID"
quietly fio --name=crowded $verified --filename=$disk2 --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=$random_size
ask status

step ext4
quietly mke2fs -q -F -t ext4 $disk2
mkdir -p /mnt/ext4
mount -t ext4 $disk2 /mnt/ext4

# write_until_told FOLDER: files that are synced, one by one, and then noted in /tmp/FOLDER.sums, until /tmp/stop is there
# or a write fails.
write_until_told() {
    trap - ERR
    set +e
    mkdir -p "/mnt/ext4/$1"
    cd "/mnt/ext4/$1" || return
    local n=0
    until [ -e /tmp/stop ]; do
        n=$((n + 1))
        dd if=/dev/urandom of=$n bs=32k count=2 conv=fsync 2>/dev/null && sha256sum $n >>"/tmp/$1.sums" || return
    done
    # Not reached after a failure.
    touch "/tmp/$1.whole"
}

# What the drive has, and not what Linux remembers.
check() {
    echo 3 >/proc/sys/vm/drop_caches
    [ "$(wc -l <"/tmp/$1.sums")" -gt 0 ] || fail "$1: the writer wrote nothing"
    (cd "/mnt/ext4/$1" && quietly sha256sum -c "/tmp/$1.sums")
}

# let_write FOLDER: in the smoke until two more files are written, in a soak for a second.
let_write() {
    if in_soak; then sleep 1; else wait_until "files are written" grown "$1" $(($(lines_of "/tmp/$1.sums") + 2)); fi
}
lines_of() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
grown() { [ "$(wc -l <"/tmp/$1.sums")" -ge "$2" ]; }

if in_soak; then
    step "the server is stopped in order while idle"
    stop_server a
    quietly dd if=/dev/urandom of=/mnt/ext4/noise bs=64k count=4 conv=fsync
fi

step "the server is stopped in order in the middle of writing to zones and to ext4"
quietly blkzone reset $disk
write_until_told stopped &
writer=$!
# The rest of a write that was executed, and whose answer is lost, is refused when it is sent again: a server that stops in
# order loses no answer.
(quietly fio --name=stopped $verified $zones --rate=4m --size=$stopped_zones) >/tmp/fio.says 2>&1 &
zoned_writer=$!
# fio begins with a report of zones, which Linux does not send again when its connection breaks.
# All that it writes may be written between two looks, on a machine that is busy: zones that are full have been begun, too.
has_begun() { blkzone report -c 1 $disk | grep -qE '\((oi|cl|fu)\)'; }
wait_until "fio writes" has_begun
for time in $(seq $stops); do
    let_write stopped
    stop_server a
done
touch /tmp/stop
wait $writer
wait $zoned_writer || fail "fio: $(cat /tmp/fio.says)"
[ -e /tmp/stopped.whole ] || fail "a write failed while the server was away"
rm /tmp/stop
check stopped

step "the server is killed in the middle of writing to ext4"
write_until_told killed &
writer=$!
let_write killed
kill_server a
let_write killed
touch /tmp/stop
wait $writer
[ -e /tmp/killed.whole ] || fail "a write failed while the server was away"
check killed
check stopped
umount /mnt/ext4
quietly e2fsck -f -n $disk2
mount -t ext4 $disk2 /mnt/ext4
check killed
check stopped
umount /mnt/ext4

step "the server has hung up on all that said nothing"
ask disperse
section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 32 -o json

step disconnect
detach a
