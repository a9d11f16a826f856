# btrfs on zones, over two deaths of the server. Subsystem `a`: one namespace, 48 MiB in zones of 64 MiB.

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

# Reads of the checks are to reach the drive.
forget() {
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
forget
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
    forget
    check first
    fill second
    forget
    check second
    scrub
fi

step "the server is killed in the middle of writing"
# Files that were synced, one by one, are noted; the writer ends when it is told to, or when a write fails.
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
# A write that was executed but not answered is sent again, and is then not at the write pointer: Linux may take the file
# system read-only. What was synced must be there all the same.
wait $writer || true
section mount-state grep btrfs /proc/mounts
section synced wc -l /tmp/third.sums
[ "$(wc -l </tmp/third.sums)" -gt 0 ] || fail "the writer wrote nothing"
remount
forget
check first
if in_soak; then check second; fi
check third
scrub
fill fourth
rm -r /mnt/btrfs/first
sync
remount
forget
if in_soak; then check second; fi
check fourth
umount /mnt/btrfs
quietly btrfs check $disk

section blkzone blkzone report $disk
section zns-report nvme zns report-zones $disk -d 64 -o json

step disconnect
detach a
