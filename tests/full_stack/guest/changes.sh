# A namespace is added, grows and is removed while the host reads and writes another one of the same controller.

step connect
attach a 1
busy=$disk
controller=${controller#/dev/}
zone_sectors=$(cat /sys/block/${busy#/dev/}/queue/chunk_sectors)
verified="--zonemode=zbd --direct=1 --ioengine=libaio --rw=write --bs=64k --iodepth=4 --verify=crc32c --do_verify=1 --verify_fatal=1"
if in_soak; then rounds=3 size=4z; else rounds=1 size=1z; fi

# The numbers of disks are not reused at once, so a disk is looked for by its namespace.
has_zones() { # ZONES
    local disk
    disk=$(disk_of $controller 2) || return 1
    [ "$(cat /sys/block/${disk#/dev/}/size)" = $(($1 * zone_sectors)) ] && [ "$(cat /sys/block/${disk#/dev/}/queue/nr_zones)" = "$1" ]
}
# Writes to the start of a zone, and reads it again; cheaper than fio, which takes seconds to start here.
write_and_read() { # ZONE
    quietly dd if=/tmp/noise of=$disk bs=64k oflag=direct seek=$(($1 * zone_sectors / 128))
    quietly dd if=$disk of=/tmp/found bs=64k count=16 iflag=direct skip=$(($1 * zone_sectors / 128))
    cmp /tmp/noise /tmp/found
}
is_removed() { ! disk_of $controller 2 && ! nvme id-ns /dev/$controller -n 2; }

quietly dd if=/dev/urandom of=/tmp/noise bs=64k count=16
step "namespace 1, verified, until all is done"
(
    count=0
    while [ ! -e /tmp/changed ]; do
        fio --name=busy --filename=$busy --size=$size $verified >/tmp/busy 2>&1 || exit 1
        count=$((count + 1))
    done
    echo $count >/tmp/count
) &
busy_job=$!

ask status
for round in $(seq $rounds); do
    step "round $round: namespace 2 comes, with 4 zones"
    ask "namespace 2 4"
    wait_until "namespace 2 has 4 zones" has_zones 4
    disk=$(disk_of $controller 2)
    write_and_read 0
    refused dd if=/dev/zero of=$disk bs=4k count=1 oflag=direct seek=$((6 * zone_sectors / 8))

    step "it grows to 8 zones"
    ask "namespace 2 8"
    wait_until "namespace 2 has 8 zones" has_zones 8
    [ "$(disk_of $controller 2)" = "$disk" ] || fail "the disk is another one"
    write_and_read 6
    section zones-$round blkzone report $disk

    step "it goes"
    ask "namespace 2 0"
    wait_until "namespace 2 is removed" is_removed
done
ask status

step "namespace 1 had no error"
touch /tmp/changed
wait $busy_job || { cat /tmp/busy; fail "fio on namespace 1"; }
section busy cat /tmp/count
[ "$(cat /sys/class/nvme/$controller/state)" = live ] || fail "the controller is not live"
if dmesg | grep -E "I/O error, dev ${busy#/dev/}|Reconnecting|error recovery"; then fail "the kernel reports errors of namespace 1"; fi

step disconnect
detach a
