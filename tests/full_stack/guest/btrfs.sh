# btrfs on zones, while the server is killed twice. Subsystem `a`: one namespace, 48 MiB in zones of 64 MiB.

step connect
attach a 1
modprobe btrfs

step mkfs
quietly mkfs.btrfs -f -m single -d single $disk
mkdir -p /mnt/btrfs
mount -t btrfs $disk /mnt/btrfs

if in_soak; then files=24; else files=8; fi

# fill FOLDER: files of many sizes, their checksums in /tmp/FOLDER.sums
fill() {
    mkdir -p "/mnt/btrfs/$1"
    local n
    for n in $(seq $files); do
        head -c $((n * n * 3001)) /dev/urandom >"/mnt/btrfs/$1/$n"
    done
    sync
    (cd "/mnt/btrfs/$1" && sha256sum -- *) >"/tmp/$1.sums"
}

check() {
    (cd "/mnt/btrfs/$1" && quietly sha256sum -c "/tmp/$1.sums")
}

# Drops caches, so that the checks read from the drive.
drop_caches() {
    echo 3 >/proc/sys/vm/drop_caches
}

scrub() {
    quietly btrfs scrub start -B /mnt/btrfs
    btrfs scrub status /mnt/btrfs | grep -q 'no errors found' || fail "$(btrfs scrub status /mnt/btrfs)"
}

remount() {
    umount /mnt/btrfs
    mount -t btrfs $disk /mnt/btrfs
}

step "fill, scrub, remount, check"
fill first
drop_caches
check first
scrub
remount
check first
umount /mnt/btrfs
quietly btrfs check $disk
mount -t btrfs $disk /mnt/btrfs

if in_soak; then
    step "the server is killed while idle"
    kill_server a
    drop_caches
    check first
    fill second
    drop_caches
    check second
    scrub
fi

step "the server is killed in the middle of writing"
# Synced files are recorded, one by one; the writer ends at /tmp/stop, or when a write fails.
mkdir -p /mnt/btrfs/third
: >/tmp/third.sums
(
    trap - ERR
    set +e
    cd /mnt/btrfs/third
    n=0
    until [ -e /tmp/stop ]; do
        n=$((n + 1))
        dd if=/dev/urandom of=$n bs=32k count=4 conv=fsync && sha256sum $n >>/tmp/third.sums || break
    done
) 2>/dev/null &
writer=$!
let_write() { # in the smoke: until three more files are written; the writer may have ended
    if in_soak; then sleep 1; else wait_until "files are written" grown $(($(wc -l </tmp/third.sums) + 3)); fi
}
grown() { [ "$(wc -l </tmp/third.sums)" -ge "$1" ] || ! kill -0 $writer; }
let_write
kill_server a
let_write
touch /tmp/stop
# A write that was executed but not acknowledged is retried, and is then not at the write pointer: Linux may remount the file
# system read-only. Synced data must be present nevertheless.
wait $writer || true
section mount-state grep btrfs /proc/mounts
section synced wc -l /tmp/third.sums
[ "$(wc -l </tmp/third.sums)" -gt 0 ] || fail "the writer wrote nothing"
remount
drop_caches
check first
if in_soak; then check second; fi
check third
scrub
fill fourth
rm -r /mnt/btrfs/first
sync
remount
drop_caches
if in_soak; then check second; fi
check fourth
umount /mnt/btrfs
quietly btrfs check $disk

section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 64 -o json

step disconnect
detach a
