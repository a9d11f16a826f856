# A server with many silent connections is stopped cleanly, and killed, while a host stays connected. Subsystem `a`: namespace 1 has small zones,
# namespace 2 is conventional.

step connect
attach a 2

verified="--direct=1 --ioengine=libaio --verify=crc32c --do_verify=1 --verify_fatal=1"
zones="--filename=$disk --zonemode=zbd --rw=write --bs=64k --iodepth=8 --max_open_zones=6"

if in_soak; then crowded_zones=2z random_size=4m stopped_zones=5z stops=3; else crowded_zones=1z random_size=512k stopped_zones=3z stops=1; fi

step "500 silent connections"
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

# write_until_stopped FOLDER: writes and syncs files, one by one, and records them in /tmp/FOLDER.sums, until /tmp/stop exists
# or a write fails.
write_until_stopped() {
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

# Verifies the data on the drive, not in the page cache.
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
    step "the server is stopped cleanly while idle"
    stop_server a
    quietly dd if=/dev/urandom of=/mnt/ext4/noise bs=64k count=4 conv=fsync
fi

step "the server is stopped cleanly during writes to zones and to ext4"
quietly blkzone reset $disk
write_until_stopped stopped &
writer=$!
# A write that was executed and whose reply was lost is refused when it is retried: a server that stops cleanly loses no
# reply.
(quietly fio --name=stopped $verified $zones --rate=4m --size=$stopped_zones) >/tmp/fio.says 2>&1 &
zoned_writer=$!
# fio starts with a zone report, which Linux does not retry when its connection breaks.
# On a busy machine fio may finish between two checks: full zones have been started, too.
has_begun() { blkzone report -c 1 $disk | grep -qE '\((oi|cl|fu)\)'; }
wait_until "fio writes" has_begun
for time in $(seq $stops); do
    let_write stopped
    stop_server a
done
touch /tmp/stop
wait $writer
wait $zoned_writer || fail "fio: $(cat /tmp/fio.says)"
[ -e /tmp/stopped.whole ] || fail "a write failed while the server was down"
rm /tmp/stop
check stopped

step "the server is killed during writes to ext4"
write_until_stopped killed &
writer=$!
let_write killed
kill_server a
let_write killed
touch /tmp/stop
wait $writer
[ -e /tmp/killed.whole ] || fail "a write failed while the server was down"
check killed
check stopped
umount /mnt/ext4
quietly e2fsck -f -n $disk2
mount -t ext4 $disk2 /mnt/ext4
check killed
check stopped
umount /mnt/ext4

step "the server has closed all silent connections"
ask disperse
section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 32 -o json

step disconnect
detach a
