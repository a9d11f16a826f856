# zonda on drives of this guest. Programs: /test/zonda, /test/conformance.
disk=/dev/nvme0n1
PATH=$PATH:/test
export NO_COLOR=1
cd /tmp

# null_disk NAME ZONE_MIB CAPACITY_MIB OPEN ACTIVE CONVENTIONAL MIB
null_disk() {
    local disk=/sys/kernel/config/nullb/$1
    mkdir "$disk"
    echo 4096 >"$disk/blocksize"
    echo 1 >"$disk/memory_backed"
    echo 1 >"$disk/zoned"
    echo "$2" >"$disk/zone_size"
    echo "$3" >"$disk/zone_capacity"
    echo "$4" >"$disk/zone_max_open"
    echo "$5" >"$disk/zone_max_active"
    echo "$6" >"$disk/zone_nr_conv"
    echo "$7" >"$disk/size"
    echo 1 >"$disk/power"
}

# start_serving DIR|DEVICE: $server is its process.
start_serving() {
    zonda serve "$1" --http off >serve.log 2>&1 &
    server=$!
    wait_until "zonda serves $1" grep -q "listening on" serve.log
}

# killed: SIGKILL, and a new server; returns when this host is connected again.
killed() { # DIR|DEVICE SUBSYSTEM
    kill -9 $server
    wait $server || true
    start_serving "$1"
    wait_until "the host is reconnected" is_live "$(controller_of "$2")"
}

stop_serving() {
    kill $server
    wait $server || fail "the server ended with $?: $(cat serve.log)"
}

modprobe null_blk nr_devices=0
null_disk bare 2 1 0 0 0 32
null_disk a 4 4 14 14 0 128
null_disk b 4 4 14 14 0 128
null_disk c 4 4 14 14 0 128
null_disk d 4 3 14 14 0 64

step drives that cannot be used are named, with the reason
refused_with "is not a zoned block device" zonda zone report /dev/vda
refused_with "does not exist" zonda zone report /dev/nothing
refused_with "neither a block device nor" zonda zone report /dev/hvc0
mkdir -p /mnt/z
quietly mkzonefs $disk
mount -t zonefs $disk /mnt/z
refused_with "is in use" zonda zone report $disk
refused_with "is in use" zonda zone report /dev/ng0n1
umount /mnt/z

step a reset says what it would destroy, by either driver
refused_with "holds a zonefs file system" zonda zone reset $disk --all
refused_with "holds a zonefs file system" zonda zone reset /dev/ng0n1 --all
quietly zonda zone reset /dev/ng0n1 --all --yes

step zones that zonda changes are those that Linux reports
quietly zonda zone finish $disk 1
quietly zonda zone open /dev/ng0n1 2
states=$(blkzone report $disk -c 4 | sed 's/.*zcond:.*(\(..\)).*/\1/' | tr '\n' ' ')
[ "$states" = "em fu oe em " ] || fail "blkzone reports $states"
quietly zonda zone reset $disk --all --yes

step conformance
if in_soak; then
    modprobe sd_mod
    modprobe scsi_debug zbc=managed zone_size_mb=2 zone_max_open=0 zone_nr_conv=3 dev_size_mb=64 sector_size=4096
    wait_until "the disk of scsi_debug exists" test -b /dev/sda
    section conformance-bare conformance /dev/bare
    section conformance-scsi conformance /dev/sda
    section conformance-zns conformance $disk
    section conformance-depth-1 conformance /dev/ng0n1 deallocates depth-1
    section conformance conformance /dev/ng0n1 deallocates
else
    section conformance conformance /dev/bare
fi

step a served drive survives SIGKILL: what fio has written is verified
options="--name=v --zonemode=zbd --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c --max_open_zones=4"
if in_soak; then size=24M; else size=6M; fi
start_serving /dev/d
attach d 1
# shellcheck disable=SC2086  # lists of words
quietly fio $options --filename="$disk" --size=$size --rw=write
killed /dev/d d
# shellcheck disable=SC2086
quietly fio $options --filename="$disk" --size=$size --rw=read --verify_only
detach d
stop_serving

if in_soak; then
    step a volume of drives survives SIGKILL
    quietly zonda volume create vol --members /dev/a,/dev/b,/dev/c
    refused_with 'member 0 of the volume "vol"' zonda pool create pool --drive /dev/a
    refused_with 'member 0 of the volume "vol"' zonda serve /dev/a
    start_serving vol
    attach vol 1
    options="--name=v --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c"
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --size=16M --rw=randwrite --fsync=16
    killed vol vol
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --size=16M --rw=randread --verify_only
    detach vol
    stop_serving
    section scrub zonda volume scrub vol --json
fi

step zones that fail are read only and offline, and the host is told
null_disk failing 4 3 14 14 0 64
start_serving /dev/failing
attach failing 1
quietly dd if=/dev/urandom of="$disk" bs=64k count=2 oflag=direct
echo 0 >/sys/kernel/config/nullb/failing/zone_readonly
echo 8192 >/sys/kernel/config/nullb/failing/zone_offline
refused dd if=/dev/urandom of="$disk" bs=64k count=1 seek=2 oflag=direct
refused dd if=/dev/urandom of="$disk" bs=64k count=1 seek=64 oflag=direct
quietly dd if="$disk" of=/dev/null bs=64k count=2 iflag=direct
states=$(blkzone report "$disk" -c 3 | sed 's/.*zcond:.*(\(..\)).*/\1/' | tr '\n' ' ')
[ "$states" = "ro of em " ] || fail "blkzone reports $states"
detach failing
stop_serving

step a pool on a drive, and its directory recreated from the drive
quietly zonda zone reset /dev/d --all --yes
quietly zonda pool create pool --drive /dev/d
quietly zonda namespace create pool x --size 8MiB --active 4
rm -r pool
quietly zonda pool takeover pool --drive /dev/d
section pool zonda namespace list pool --json

step passthrough serves, too
quietly zonda zone reset /dev/ng0n1 --all --yes
start_serving /dev/ng0n1
attach ng0n1 1
options="--name=v --zonemode=zbd --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c --max_open_zones=2"
# shellcheck disable=SC2086
quietly fio $options --filename="$disk" --size=6M --rw=write
detach ng0n1
stop_serving

step a drive that disappears fails every command, and the server can be stopped
# vanish DEVICE: under load. The drive exists again afterwards.
vanish() {
    local load status=0 local_controller
    start_serving "$1"
    attach "${1#/dev/}" 1
    # shellcheck disable=SC2086
    fio $options --filename="$disk" --size=8M --rw=write --verify=0 --time_based --runtime=60 >/dev/null 2>&1 &
    load=$!
    sleep 2
    local_controller=$(readlink -f /sys/class/nvme/nvme0/device)
    echo 1 >"$local_controller/remove"
    if wait $load; then fail "no write to a missing drive has failed"; fi
    refused dd if="$disk" of=/dev/null bs=64k count=1 iflag=direct
    detach "${1#/dev/}"
    kill $server
    wait $server || status=$?
    [ $status = 1 ] || fail "the server ended with $status: $(cat serve.log)"
    grep -q "the drive is missing, every command fails from now on" serve.log || fail "$(cat serve.log)"
    echo 1 >/sys/bus/pci/rescan
    wait_until "the drive exists again" test -e "$1"
}
vanish /dev/ng0n1
vanish /dev/nvme0n1
