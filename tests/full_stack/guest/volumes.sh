# ext4 on a RAID 5 of four drives, under verified load, while the server is killed twice, a drive is failed, and its spare
# rebuilt. Subsystem `v`: namespace 1 is the volume v-1; its drives are v-1-0 to v-1-3, the spare is v-1-4.

step connect
attach v 1

# What fio writes to the disk; to a file, and how often.
if in_soak; then bare_size=16m file_size=2m loops=3; else bare_size=512k file_size=1m loops=1; fi

step "random writes to the bare disk, verified"
quietly fio --name=bare --filename=$disk --direct=1 --ioengine=libaio --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=$bare_size \
    --verify=crc32c --do_verify=1 --verify_fatal=1

step ext4
quietly mke2fs -q -F -t ext4 $disk
mkdir -p /mnt/ext4
mount -t ext4 $disk /mnt/ext4

# write_until_stopped FOLDER: writes and syncs files, one by one, and records them in /tmp/FOLDER.sums, until /tmp/stop exists
# or a write fails. Only the last twenty are kept, so that the volume has blocks to reclaim.
write_until_stopped() {
    trap - ERR
    set +e
    mkdir -p "/mnt/ext4/$1"
    cd "/mnt/ext4/$1" || return
    local n=0
    until [ -e /tmp/stop ]; do
        n=$((n + 1))
        dd if=/dev/urandom of=$n bs=32k count=2 conv=fsync 2>/dev/null && sha256sum $n >>"/tmp/$1.sums" || return
        echo $n >"/tmp/$1.count"
        if [ $n -gt 20 ]; then
            rm $((n - 20))
            sed -i 1d "/tmp/$1.sums"
        fi
    done
    # Not reached after a failure.
    touch "/tmp/$1.whole"
}

# verified_writes NAME: fio writes a file in random order, repeatedly, and verifies it.
verified_writes() {
    (quietly fio --name="$1" --directory=/mnt/ext4 --direct=1 --ioengine=libaio --rw=randwrite --bsrange=4k-32k --iodepth=4 --size=$file_size \
        --loops=$loops --rate=1m --verify=crc32c --do_verify=1 --verify_fatal=1) >"/tmp/$1.says" 2>&1
}

begin() {
    rm -f /tmp/stop
    write_until_stopped "$1" &
    writer=$!
    verified_writes "$1-fio" &
    fio=$!
}

end() {
    wait $fio || fail "fio: $(cat "/tmp/$1-fio.says")"
    touch /tmp/stop
    wait $writer
    [ -e "/tmp/$1.whole" ] || fail "$1: a write failed"
}

# Verifies the data on the drives, not in the page cache.
check() {
    echo 3 >/proc/sys/vm/drop_caches
    local folder
    for folder in "$@"; do
        [ "$(wc -l <"/tmp/$folder.sums")" -gt 0 ] || fail "$folder: the writer wrote nothing"
        (cd "/mnt/ext4/$folder" && quietly sha256sum -c "/tmp/$folder.sums")
    done
}

# let_write FOLDER: until two more files are written.
let_write() {
    wait_until "files are written" has_written $(($(cat "/tmp/$1.count" 2>/dev/null || echo 0) + 2)) "$1"
}
has_written() { [ "$(cat "/tmp/$2.count")" -ge "$1" ]; }

if in_soak; then
    step "the server is killed under load"
    begin killed
    sleep 2
    kill_server v
    end killed
    check killed

    step "a drive is failed under load, and the server is killed while the spare is rebuilt"
    begin pulled
    sleep 1
    ask fail-member v-1 v-1-1
    sleep 2
    ask is-rebuilding v-1
    kill_server v
    ask is-rebuilding v-1
    end pulled
    check killed pulled

    step "the rebuild completes under load"
    begin rebuilt
    ask rebuild v-1
    end rebuilt
    ask status
    check killed pulled rebuilt

    step "another drive is missing after a kill"
    begin lost
    sleep 1
    ask lose-drive v-1-2
    wait_until "the host is reconnected" is_live ${controller#/dev/}
    end lost
    check killed pulled rebuilt lost
    folders="killed rebuilt lost"
else
    step "under load: the server is killed, a drive is failed, and its spare rebuilt"
    begin killed
    let_write killed
    kill_server v
    let_write killed
    ask fail-member v-1 v-1-1
    ask is-rebuilding v-1
    let_write killed
    ask rebuild v-1
    end killed
    ask status
    check killed
    folders=killed
fi

step "fstrim frees blocks"
rm -rf /mnt/ext4/pulled /mnt/ext4/*-fio*
fstrim /mnt/ext4
check $folders

step "the file system is clean"
umount /mnt/ext4
quietly e2fsck -f -n $disk
ask scrub v-1
mount -t ext4 $disk /mnt/ext4
check $folders
umount /mnt/ext4

step disconnect
detach v
