# zonda on drives of this guest. Programs: /test/zonda, /test/conformance.
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

wait_until "the drive of QEMU exists" find_own_drive
disk=$drive

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
refused_with "is in use" zonda zone report "$ng"
umount /mnt/z

step a reset says what it would destroy, by either driver
refused_with "holds a zonefs file system" zonda zone reset $disk --all
refused_with "holds a zonefs file system" zonda zone reset "$ng" --all
quietly zonda zone reset "$ng" --all --yes

step zones that zonda changes are those that Linux reports
quietly zonda zone finish $disk 1
quietly zonda zone open "$ng" 2
states=$(blkzone report $disk -c 4 | sed 's/.*zcond:.*(\(..\)).*/\1/' | tr '\n' ' ')
[ "$states" = "em fu oe em " ] || fail "blkzone reports $states"
quietly zonda zone reset $disk --all --yes

# An SMR disk whose logical blocks have 512 bytes, and its physical blocks 4096. The first 3 of its zones are conventional.
modprobe sd_mod
modprobe scsi_debug zbc=managed zone_size_mb=2 zone_max_open=0 zone_nr_conv=3 dev_size_mb=64 physblk_exp=3
wait_until "the disk of scsi_debug exists" test -b /dev/sda

step a 512e disk is used with blocks of 4096 bytes
section zones-512e zonda zone report /dev/sda --json
[ "$(cat /sys/block/sda/queue/logical_block_size)" = 512 ] || fail "the disk is not 512e"

# The second namespace by another name. So zonda does not find its block device, whose limit transfers would have, and transfers 128 KiB
# at most: QEMU 7.2 loses the end of metadata that are longer than 512 bytes and no multiple of that, as nvme-cli shows as well.
number=$(cat "/sys/class/nvme-generic/${ng2#/dev/}/dev")
mknod /dev/metadata c "${number%:*}" "${number#*:}"

step conformance
if in_soak; then
    section conformance-bare conformance /dev/bare
    section conformance-scsi conformance /dev/sda
    section conformance-zns conformance $disk
    section conformance-depth-1 conformance "$ng" deallocates depth-1
    section conformance-metadata conformance /dev/metadata deallocates depth-1
    section conformance conformance "$ng" deallocates
else
    section conformance conformance /dev/bare
fi

# write_until_stopped CAPACITY_KIB: writes 128 KiB at a time from zone 8 of $disk on, at most 8 zones, and records in /tmp/written how
# many writes were acknowledged, until /tmp/stop exists or a write fails: one that was executed and whose reply was lost is refused
# when it is retried.
write_until_stopped() {
    trap - ERR
    set +e
    local n=0 per_zone=$(($1 / 128)) place
    until [ -e /tmp/stop ] || [ $n -ge $((8 * per_zone)) ]; do
        place=$(((8 + n / per_zone) * zone_sectors / 256 + n % per_zone))
        dd if=/tmp/noise of="$disk" bs=128k count=1 oflag=direct skip=$((n % per_zone)) seek=$place 2>/dev/null || return
        n=$((n + 1))
        echo $n >/tmp/written
    done
}

# check_written CAPACITY_KIB: all of that can be read.
check_written() {
    local left zone=8 per_zone=$(($1 / 128)) part
    left=$(cat /tmp/written)
    while [ "$left" -gt 0 ]; do
        part=$((left < per_zone ? left : per_zone))
        quietly dd if="$disk" of=/tmp/found bs=128k count=$part iflag=direct skip=$((zone * zone_sectors / 256))
        cmp -n $((part * 131072)) /tmp/noise /tmp/found || fail "$disk: the first $part writes to zone $zone"
        left=$((left - part)) zone=$((zone + 1))
    done
}

# survives_kill DEVICE CAPACITY_KIB SIZE: the device is served, fio writes SIZE bytes with verification, and the server is killed while
# other zones are written. Everything that was acknowledged is read.
survives_kill() {
    local name=${1#/dev/} writer
    local options="--name=v --zonemode=zbd --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c --max_open_zones=2"
    step "$1 is served, under fio with verification, and survives SIGKILL while it is written"
    quietly zonda zone reset "$1" --all --yes
    start_serving "$1"
    attach "$name" 1
    zone_sectors=$(cat "/sys/block/${disk#/dev/}/queue/chunk_sectors")
    # shellcheck disable=SC2086  # lists of words
    quietly fio $options --filename="$disk" --size=$3 --rw=write
    rm -f /tmp/stop /tmp/written
    write_until_stopped "$2" &
    writer=$!
    wait_until "a zone is written" test -s /tmp/written
    killed "$1" "$name"
    touch /tmp/stop
    wait $writer || true
    echo 3 >/proc/sys/vm/drop_caches
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --size=$3 --rw=read --verify_only
    check_written "$2"
    detach "$name"
    stop_serving
}

dd if=/dev/urandom of=/tmp/noise bs=1M count=4 2>/dev/null
if in_soak; then
    survives_kill /dev/d 3072 21M
    survives_kill "$drive" 1024 8M
    survives_kill "$ng" 1024 8M
    survives_kill /dev/sda 2048 16M
    grep -q "the 3 conventional zones of the drive are not used" serve.log || fail "$(cat serve.log)"
else
    survives_kill /dev/d 3072 6M
    survives_kill "$ng" 1024 2M
fi

# volume_survives_kill NAME MEMBERS SIZE: the same for a volume.
volume_survives_kill() {
    local options="--name=v --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c"
    quietly zonda volume create "$1" --members "$2"
    start_serving "$1"
    attach "$1" 1
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --size=$3 --rw=randwrite --fsync=16
    killed "$1" "$1"
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --size=$3 --rw=randread --verify_only
    detach "$1"
    stop_serving
}

if in_soak; then
    step a volume of drives survives SIGKILL
    volume_survives_kill vol /dev/a,/dev/b,/dev/c 16M
    refused_with 'member 0 of the volume "vol"' zonda pool create pool --drive /dev/a
    refused_with 'member 0 of the volume "vol"' zonda serve /dev/a
    section check zonda volume check vol --json
    section scrub zonda volume scrub vol --json

    step a volume on a disk with conventional zones survives SIGKILL
    quietly zonda zone reset /dev/sda --all --yes
    volume_survives_kill smr /dev/sda 8M
    refused_with 'member 0 of the volume "smr"' zonda zone reset /dev/sda --all --yes
    section check-smr zonda volume check smr --json
    section scrub-smr zonda volume scrub smr --json
fi

step a volume that needs a drive continues when the drive is plugged in again
# In a soak, it holds another volume.
quietly zonda zone reset /dev/sda --all --yes --force
quietly zonda volume create plug --members /dev/sda
start_serving plug
attach plug 1
quietly dd if=/tmp/noise of="$disk" bs=128k count=8 oflag=direct
plugged=$(readlink -f /sys/block/sda/device)
scsi_host=$(basename "$(dirname "$(dirname "$plugged")")")
echo 1 >"$plugged/delete"
dd if=/tmp/noise of="$disk" bs=128k count=8 seek=8 oflag=direct 2>/dev/null &
writer=$!
wait_until "the server notices that the drive is missing" grep -q "the drive is missing" serve.log
sleep 2
kill -0 $writer || fail "a write to a missing drive did not wait: $(cat serve.log)"
echo "- - -" >"/sys/class/scsi_host/$scsi_host/scan"
wait $writer || fail "the write has failed: $(cat serve.log)"
grep -q "is reconnected" serve.log || fail "$(cat serve.log)"
for part in 0 8; do
    quietly dd if="$disk" of=/tmp/found bs=128k count=8 skip=$part iflag=direct
    cmp -n 1048576 /tmp/noise /tmp/found || fail "the blocks from part $part on are other ones"
done
detach plug
stop_serving
section check-plug zonda volume check plug --json

# Drives of QEMU that can be unplugged, by names that stay the same: there is no udev.
mkdir -p /dev/disk/by-id
has_link() { # SERIAL
    local number
    number=$(controller_with "$1") && [ -c "/dev/ng${number}n1" ] && ln -sf "/dev/ng${number}n1" "/dev/disk/by-id/nvme-$1"
}
unplug() { # SERIAL
    local number
    number=$(controller_with "$1")
    rm "/dev/disk/by-id/nvme-$1"
    echo 1 >"$(readlink -f "/sys/class/nvme/nvme$number/device")/remove"
}
plug() { # SERIAL
    echo 1 >/sys/bus/pci/rescan
    wait_until "the drive $1 exists again" has_link "$1"
}
for serial in member0 member1 member2; do
    wait_until "the drive $serial exists" has_link $serial
done
members=/dev/disk/by-id/nvme-member

# has_noise FIRST COUNT: that part of $disk, in units of 128 KiB, is what was written there.
has_noise() {
    quietly dd if="$disk" of=/tmp/found bs=128k count="$2" skip="$1" iflag=direct
    cmp -n $(($2 * 131072)) /tmp/noise /tmp/found || fail "$disk: the parts from $1 on are other ones"
}
write_noise() { dd if=/tmp/noise of="$disk" bs=128k count=8 seek="$1" oflag=direct 2>&1; }

step a member by passthrough that is unplugged fails, and is re-added and resynchronized when it is plugged in again
quietly zonda volume create ngs --level 5 --members ${members}0,${members}1,${members}2
start_serving ngs
attach ngs 1
quietly write_noise 0
unplug member1
quietly write_noise 8
wait_until "the member fails" grep -q "has failed" serve.log
has_noise 0 8
has_noise 8 8
plug member1
wait_until "the member is re-added" grep -q "is back: resynchronizing what it missed" serve.log
section status-resynchronized zonda volume status ngs --wait --json
# Without another member, what was written meanwhile is read from the one that was away.
unplug member2
quietly write_noise 16
for part in 0 8 16; do
    has_noise $part 8
done
plug member2
two_are_back() { [ "$(grep -c "is back: resynchronizing" serve.log)" = 2 ]; }
wait_until "the second member is re-added" two_are_back
quietly zonda volume status ngs --wait --json
if in_soak; then
    # Under load, and in the middle of it.
    options="--name=v --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --verify=crc32c --size=16M"
    # shellcheck disable=SC2086
    fio $options --filename="$disk" --rw=randwrite --loops=3 >/tmp/fio-says 2>&1 &
    load=$!
    for serial in member0 member1 member2; do
        sleep 2
        unplug $serial
        sleep 3
        plug $serial
        quietly zonda volume status ngs --wait --json
    done
    wait $load || fail "fio: $(cat /tmp/fio-says)"
    # shellcheck disable=SC2086
    quietly fio $options --filename="$disk" --rw=randread --verify_only
fi
detach ngs
stop_serving
section check-ngs zonda volume check ngs --json

step a volume whose only drive is unplugged from passthrough waits for it
quietly zonda zone reset ${members}0 --all --yes --force
quietly zonda volume create ng --members ${members}0
start_serving ng
attach ng 1
quietly write_noise 0
unplug member0
write_noise 8 >/dev/null &
writer=$!
wait_until "the server notices that the drive is missing" grep -q "the drive is missing" serve.log
sleep 2
kill -0 $writer || fail "a write to a missing drive did not wait: $(cat serve.log)"
plug member0
wait $writer || fail "the write has failed: $(cat serve.log)"
grep -q "is reconnected" serve.log || fail "$(cat serve.log)"
has_noise 0 8
has_noise 8 8
detach ng
stop_serving
section check-ng zonda volume check ng --json

step a descriptor extension is on the drive
quietly zonda zone reset /dev/metadata --all --yes
head -c 64 /dev/urandom >/tmp/extension
quietly nvme zns zone-mgmt-send "$ng2" --start-lba=0 --zsa=0x10 --data-len=64 --data=/tmp/extension
section zones-extension zonda zone report "$ng2" --json

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

step a drive that disappears fails every command, and the server can be stopped
# vanish DEVICE: under load. The drive exists again afterwards.
vanish() {
    local load status=0 local_controller
    local options="--name=v --zonemode=zbd --direct=1 --ioengine=libaio --iodepth=8 --bs=64k --max_open_zones=2"
    start_serving "$1"
    attach "${1#/dev/}" 1
    # shellcheck disable=SC2086
    fio $options --filename="$disk" --size=8M --rw=write --time_based --runtime=60 >/dev/null 2>&1 &
    load=$!
    sleep 2
    local_controller=$(readlink -f "/sys/class/nvme/nvme$(controller_with zonda)/device")
    echo 1 >"$local_controller/remove"
    if wait $load; then fail "no write to a missing drive has failed"; fi
    refused dd if="$disk" of=/dev/null bs=64k count=1 iflag=direct
    detach "${1#/dev/}"
    kill $server
    wait $server || status=$?
    [ $status = 1 ] || fail "the server ended with $status: $(cat serve.log)"
    grep -q "the drive is missing, every command fails from now on" serve.log || fail "$(cat serve.log)"
    echo 1 >/sys/bus/pci/rescan
    wait_until "the drive exists again" find_own_drive
}
vanish "$ng"
vanish "$drive"
