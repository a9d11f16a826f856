# Discovery, Identify, log pages and features; then every zone command, one zone each. Subsystem `a`: namespace 1 is zoned,
# 48 MiB in zones of 64 MiB; namespace 2 is conventional.

# Bytes that fio writes, and of each file on ext4.
if in_soak; then fio_size=24m file_size=1048576; else fio_size=2m file_size=262144; fi

step discover
section discover nvme discover -t tcp -a "$ADDRESS" -s "$PORT" --hostnqn "$HOST_NQN" --hostid "$HOST_ID" -o json

step connect
attach a 2

step "identify, logs and features"
section id-ctrl nvme id-ctrl $controller -o json
section id-ns nvme id-ns $disk -o json
section id-ns-2 nvme id-ns $disk2 -o json
section ns-descs nvme ns-descs $disk -o json
section list-ns nvme list-ns $controller -o json
section zns-id-ctrl nvme zns id-ctrl $controller -o json
section zns-id-ns nvme zns id-ns $disk -o json
section smart-log nvme smart-log $controller -o json
section error-log nvme error-log $controller -e 4 -o json
section fw-log nvme fw-log $controller -o json
section effects-log nvme effects-log $controller -o json
section changed-ns-list nvme changed-ns-list-log $controller -o json
if [ $TARGET = zonda ]; then
    # nvmet has neither.
    section supported-log-pages nvme supported-log-pages $controller -o json
    section changed-zone-list nvme zns changed-zone-list $disk -o json
fi
for feature in 0x06 0x07 0x0b 0x0f; do
    section feature-$feature nvme get-feature $controller -f $feature
done
section queue-zoned cat /sys/block/${disk#/dev/}/queue/zoned
section queue-limits cat /sys/block/${disk#/dev/}/queue/{nr_zones,max_open_zones,max_active_zones,chunk_sectors,zone_append_max_bytes}

step "zone commands"
zone_sectors=$(cat /sys/block/${disk#/dev/}/queue/chunk_sectors)
# Zone N starts at this block of 4 KiB.
block_of() { echo $(($1 * zone_sectors / 8)); }
write_blocks() { # ZONE OFFSET BLOCKS
    quietly dd if=/tmp/noise of=$disk bs=4k seek=$(($(block_of "$1") + $2)) count="$3" oflag=direct conv=notrunc
}
quietly dd if=/dev/urandom of=/tmp/noise bs=4k count=64

# 0: written to
write_blocks 0 0 16
# 1: opened by nvme-cli
quietly nvme zns open-zone $disk -s "$(block_of 1)"
# 2: written to, closed by nvme-cli
write_blocks 2 0 8
quietly nvme zns close-zone $disk -s "$(block_of 2)"
# 3: written to, finished by nvme-cli
write_blocks 3 0 8
quietly nvme zns finish-zone $disk -s "$(block_of 3)"
# 4: opened by blkzone
quietly blkzone open -o $((4 * zone_sectors)) -c 1 $disk
# 5: written to, reset by blkzone
write_blocks 5 0 8
quietly blkzone reset -o $((5 * zone_sectors)) -c 1 $disk
# 6: appended to twice
head -c 8192 /tmp/noise >/tmp/two-blocks
quietly nvme zns zone-append $disk -s "$(block_of 6)" -z 8192 -d /tmp/two-blocks
section append nvme zns zone-append $disk -s "$(block_of 6)" -z 8192 -d /tmp/two-blocks
# 7: finished by blkzone, though empty
quietly blkzone finish -o $((7 * zone_sectors)) -c 1 $disk
# 8: written to, closed by blkzone
write_blocks 8 0 4
quietly blkzone close -o $((8 * zone_sectors)) -c 1 $disk
# 9: finished, reset by nvme-cli, written to in two parts
quietly nvme zns finish-zone $disk -s "$(block_of 9)"
quietly nvme zns reset-zone $disk -s "$(block_of 9)"
write_blocks 9 0 4
write_blocks 9 4 4

step "what was written reads back, the rest reads as zeros"
dd if=$disk bs=4k skip="$(block_of 0)" count=16 iflag=direct 2>/dev/null | cmp -n 65536 - /tmp/noise
dd if=$disk bs=4k skip="$(block_of 6)" count=4 iflag=direct 2>/dev/null | cmp - <(cat /tmp/two-blocks /tmp/two-blocks)
if [ $TARGET = zonda ]; then
    # null_blk has ones there.
    dd if=$disk bs=4k skip=$(($(block_of 0) + 16)) count=4 iflag=direct 2>/dev/null | cmp - <(head -c 16384 /dev/zero)
    dd if=$disk bs=4k skip="$(block_of 5)" count=8 iflag=direct 2>/dev/null | cmp - <(head -c 32768 /dev/zero)
fi

step "what the specification forbids is refused"
write_to() { nvme write $disk -s "$1" -c 0 -z 4096 -d /tmp/noise; }
refused_with "Zone Is Full" nvme zns zone-append $disk -s "$(block_of 3)" -z 8192 -d /tmp/two-blocks
refused_with "Zone Is Full" write_to $(($(block_of 3) + 8))
refused_with "Zone Invalid Write" write_to $(($(block_of 0) + 17))
refused_with "Zone Invalid Write" write_to "$(block_of 0)"
refused_with "Invalid Zone State Transition" nvme zns close-zone $disk -s "$(block_of 5)"
refused_with "Invalid Zone State Transition" nvme zns open-zone $disk -s "$(block_of 3)"

section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 64 -o json

step "the limit of open zones"
quietly blkzone reset $disk
if in_soak; then
    for zone in $(seq 14); do
        quietly nvme zns open-zone $disk -s "$(block_of $((zone + 20)))"
    done
else
    quietly blkzone open -o $((21 * zone_sectors)) -c 14 $disk
fi
refused_with "Too Many \(Active\|Open\)" nvme zns open-zone $disk -s "$(block_of 40)"
refused_with "Too Many \(Active\|Open\)" nvme zns zone-append $disk -s "$(block_of 40)" -z 8192 -d /tmp/two-blocks
quietly nvme zns reset-zone $disk -s "$(block_of 21)"
quietly nvme zns open-zone $disk -s "$(block_of 40)"
quietly nvme zns close-zone $disk -a
quietly nvme zns reset-zone $disk -a
section blkzone-after-reset blkzone report $disk

step "a controller reset"
write_blocks 11 0 16
quietly nvme reset $controller
wait_until "live again" is_live ${controller#/dev/}
dd if=$disk bs=4k skip="$(block_of 11)" count=16 iflag=direct 2>/dev/null | cmp -n 65536 - /tmp/noise

step "a conventional namespace"
plain=$disk2
quietly fio --name=random --filename=$plain --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bsrange=4k-64k \
    --size=$fio_size --verify=crc32c --verify_fatal=1 --do_verify=1
quietly dd if=/tmp/noise of=$plain bs=4k seek=100 count=64 oflag=direct conv=notrunc,fsync
dd if=$plain bs=4k skip=100 count=64 iflag=direct 2>/dev/null | cmp - /tmp/noise
quietly dd if=/tmp/noise of=$plain bs=4k seek=90 count=64 oflag=direct conv=notrunc,fsync
dd if=$plain bs=4k skip=90 count=64 iflag=direct 2>/dev/null | cmp - /tmp/noise
# nvmet has no Compare: there, both fail.
[ $TARGET = kernel ] || quietly nvme compare $plain -s 90 -c 1 -z 8192 -d /tmp/noise
refused_with "Compare Failure" nvme compare $plain -s 91 -c 1 -z 8192 -d /tmp/noise
quietly nvme write-zeroes $plain -s 90 -c 1
quietly nvme write $plain -s 94 -c 1 -z 8192 -d /tmp/noise --force-unit-access
# null_blk does not deallocate.
[ $TARGET = kernel ] || quietly nvme dsm $plain -s 96 -b 2 -d 1
dd if=$plain bs=4k skip=90 count=8 iflag=direct 2>/dev/null | cmp - <(
    head -c 8192 /dev/zero
    dd if=/tmp/noise bs=4k skip=2 count=2 2>/dev/null
    head -c 8192 /tmp/noise
    if [ $TARGET = zonda ]; then head -c 8192 /dev/zero; else dd if=/tmp/noise bs=4k skip=6 count=2 2>/dev/null; fi
)
quietly fio --name=large --filename=$plain --direct=1 --ioengine=libaio --iodepth=8 --rw=write --bs=1m --size=$fio_size --verify=crc32c \
    --verify_fatal=1 --do_verify=1
refused_with "Invalid Command Opcode" nvme format $plain --force
refused_with "LBA Out of Range" nvme read $plain -s 99999999 -c 0 -z 4096 -d /tmp/nothing
quietly blkdiscard -o 0 -l 4194304 $plain
quietly mke2fs -q -F -t ext4 $plain
mkdir -p /mnt/ext4
mount -t ext4 $plain /mnt/ext4
for file in 1 2 3 4; do head -c $file_size /dev/urandom >/mnt/ext4/$file; done
sha256sum /mnt/ext4/? >/tmp/sums
umount /mnt/ext4
quietly e2fsck -f -n $plain
mount -t ext4 $plain /mnt/ext4
quietly sha256sum -c /tmp/sums
umount /mnt/ext4

step disconnect
section blkzone-last blkzone report $disk
section smart-log-after nvme smart-log $controller -o json
detach a
