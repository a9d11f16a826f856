# Two tenants of a pool under fio with verification, while a namespace is created, one grows, and one is deleted; then the
# server is killed while they write. Subsystem `log`: namespace 1; subsystem `db`: namespaces 1 and 2 (`old`).

step connect
attach log 1
log=$disk log_controller=${controller#/dev/}
attach db 2
db=$disk old=$disk2 db_controller=${controller#/dev/}
zone_sectors=$(cat /sys/block/${db#/dev/}/queue/chunk_sectors)

# Writes of 32 KiB until a zone, which has four physical ones, is full.
per_zone=$(($(blkzone report -c 1 $db | sed 's/.*cap \(0x[0-9a-f]*\).*/\1/') / 64))

if in_soak; then sizes="--size=4z"; else sizes="--size=1z --io_size=1m"; fi
# both NAME OPTIONS: fio on both.
both() {
    local name=$1
    shift
    fio --zonemode=zbd --direct=1 --ioengine=libaio --bs=32k --iodepth=4 --verify=crc32c --verify_fatal=1 $sizes "$@" \
        --name="$name-db" --filename=$db --name="$name-log" --filename=$log
}

# The numbers of disks are not reused at once, so a disk is looked for by its namespace.
has_zones() { # NAMESPACE ZONES
    local disk
    disk=$(disk_of $db_controller "$1") || return 1
    [ "$(cat /sys/block/${disk#/dev/}/size)" = $(($2 * zone_sectors)) ] && [ "$(cat /sys/block/${disk#/dev/}/queue/nr_zones)" = "$2" ]
}
# chunks FILE DISK ZONE: reads the first chunks of a zone.
chunks() {
    quietly dd if="$2" of="$1" bs=64k count=16 iflag=direct skip=$(($3 * zone_sectors / 128))
}
is_removed() { ! disk_of $db_controller 2; }

quietly dd if=/dev/urandom of=/tmp/noise bs=64k count=16
for _ in 1 2 3 4 5 6 7 8; do cat /tmp/noise; done >/tmp/noises
quietly dd if=/dev/zero of=/tmp/zeros bs=64k count=16
quietly dd if=/tmp/noise of=$old bs=64k oflag=direct

step "db and log, verified, until all is done"
(
    count=0
    while [ ! -e /tmp/changed ]; do
        both busy --rw=write --do_verify=1 >/tmp/busy 2>&1 || exit 1
        count=$((count + 1))
    done
    echo $count >/tmp/count
) &
busy_job=$!

ask status
step "a third namespace is created"
ask "pool-create new 2 3"
wait_until "namespace 3 has 2 zones" has_zones 3 2
new=$(disk_of $db_controller 3)
quietly dd if=/tmp/noise of=$new bs=64k oflag=direct

step "a fourth is deleted"
ask "pool-delete old 2"
wait_until "namespace 2 is removed" is_removed
section active nvme list-ns /dev/$db_controller

step "db grows"
ask "pool-resize db 12"
wait_until "db has 12 zones" has_zones 1 12
ask status

step "no error meanwhile"
touch /tmp/changed
wait $busy_job || { cat /tmp/busy; fail "fio on db and log"; }
section busy cat /tmp/count
# The rest of namespace 3 has the zones of the deleted one, or others: nothing of them can be read.
chunks /tmp/found $new 0
cmp /tmp/noise /tmp/found
chunks /tmp/found $new 1
cmp /tmp/zeros /tmp/found
if dmesg | grep -E "I/O error, dev (${db#/dev/}|${log#/dev/})|Reconnecting|error recovery"; then fail "the kernel reports errors"; fi
ask "pool-has db log new"

# write_until_stopped NAME DISK ZONE: writes from the start of this zone on, a quarter of a zone at a time, 128 KiB in the smoke,
# and records how many writes of 32 KiB were acknowledged, until /tmp/stop exists or a write fails: one that was executed and
# whose reply was lost is refused when it is retried.
write_until_stopped() {
    trap - ERR
    set +e
    local n=0 place part=4
    if in_soak; then part=$((per_zone / 4)); fi
    until [ -e /tmp/stop ]; do
        place=$((($3 + n / per_zone) * zone_sectors / 64 + n % per_zone))
        dd if=/tmp/noises of="$2" bs=32k count=$part oflag=direct skip=$((n % per_zone)) seek=$place 2>/dev/null || return
        n=$((n + part))
        echo $n >"/tmp/$1.written"
    done
}
written() { if [ -e "/tmp/$1.written" ]; then cat "/tmp/$1.written"; else echo 0; fi; }
has_written() { [ "$(written "$1")" -ge "$2" ]; }
# let_write NAME: until more was written.
let_write() { wait_until "$1 is written" has_written "$1" $(($(written "$1") + 1)); }
# Both tenants are written from zone 5 on, and those zones are empty.
begin() {
    rm -f /tmp/stop /tmp/*.written
    in_soak || return 0
    quietly blkzone reset -o $((5 * zone_sectors)) -c 7 $db
    quietly blkzone reset -o $((5 * zone_sectors)) -c 19 $log
}
# check_written NAME DISK ZONE: all that was written can be read.
check_written() {
    local count zone=$3 part bytes
    count=$(written "$1")
    [ "$count" -gt 0 ] || fail "$1: nothing was written"
    while [ "$count" -gt 0 ]; do
        part=$((count < per_zone ? count : per_zone))
        bytes=$((part * 32768))
        quietly dd if="$2" of=/tmp/found bs=128k count=$(((part + 3) / 4)) iflag=direct skip=$((zone * zone_sectors / 256))
        # Much faster than cmp, which compares byte by byte.
        [ "$(head -c $bytes /tmp/found | md5sum)" = "$(head -c $bytes /tmp/noises | md5sum)" ] || fail "$1: the first $bytes bytes of zone $zone"
        count=$((count - part)) zone=$((zone + 1))
    done
}
# killed NAME...: the server is killed and restarted, and all that was flushed or acknowledged is read.
killed() {
    kill_server db
    wait_until "log is reconnected" is_live $log_controller
    step "reconnected"
    touch /tmp/stop
    wait
    step "what was flushed and acknowledged is there"
    echo 3 >/proc/sys/vm/drop_caches
    quietly both kept --rw=read
    chunks /tmp/found $new 0
    cmp /tmp/noise /tmp/found
    local name
    for name in "$@"; do
        if [ "$name" = db ]; then check_written db $db 5; else check_written log $log 5; fi
    done
    ask "pool-has db log new"
}

step "fio writes what a later one verifies"
quietly both kept --rw=write --do_verify=0
quietly nvme flush $db
quietly nvme flush $log

if in_soak; then
    step "the server is killed while log overdrives"
    begin
    write_until_stopped log $log 5 &
    ask "pool-until overdrive log"
    let_write log
    killed log

    step "the server is killed while db recalls what it has lent"
    begin
    write_until_stopped log $log 5 &
    ask "pool-until recall db"
    write_until_stopped db $db 5 &
    let_write db
    killed db log

    step "the server is killed once a group of db is reclaimed"
    begin
    # Less than a group: it stays open.
    quietly dd if=/tmp/noises of=$db bs=32k count=20 oflag=direct seek=$((5 * zone_sectors / 64))
    echo 20 >/tmp/db.written
    write_until_stopped log $log 5 &
    ask "pool-until reclaim db"
    killed db log
fi

step "the server is killed while both are written"
begin
write_until_stopped db $db 5 &
write_until_stopped log $log 5 &
let_write db
let_write log
killed db log

step disconnect
detach db
detach log
