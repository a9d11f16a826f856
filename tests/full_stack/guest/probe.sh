# zonda probe on drives of this guest. Programs: /test/zonda.
PATH=$PATH:/test
export NO_COLOR=1
cd /tmp

wait_until "the drive of QEMU exists" find_own_drive
modprobe null_blk nr_devices=0
disk=/sys/kernel/config/nullb/memory
mkdir $disk
echo 4096 >$disk/blocksize
echo 1 >$disk/memory_backed
echo 1 >$disk/zoned
echo 2 >$disk/zone_size
echo 2 >$disk/zone_capacity
echo 8 >$disk/zone_max_open
echo 8 >$disk/zone_max_active
echo 256 >$disk/size
echo 1 >$disk/power
modprobe sd_mod
modprobe scsi_debug zbc=managed zone_size_mb=2 zone_max_open=8 zone_nr_conv=3 dev_size_mb=256 sector_size=4096
wait_until "the disk of scsi_debug exists" test -b /dev/sda

# served DEVICE CONFIGURATION: a server accepts it.
served() {
    step "$1: the recommended configuration is served"
    grep -q "device = \"$1\"" "$2" || fail "$(cat "$2")"
    zonda serve --config "$2" --http off >serve.log 2>&1 &
    local server=$!
    wait_until "zonda serves $1" grep -q "listening on" serve.log
    kill $server
    wait $server || fail "the server ended with $?: $(cat serve.log)"
}

# probed NAME DEVICE FIRST: everything, then only reads of two zones with data from this one on.
probed() {
    local name=$1 device=$2 first=$3
    step "$device: all parts"
    section "$name-all" zonda probe "$device" --destructive --yes --quiet --budget 30s --json --out "$name"
    section "$name-zones" zonda zone report "$device" --json
    [ -s "$name/report.html" ] || fail "no report.html of $device"
    step "$device: only reads"
    printf '[[job]]\noperation = "write"\nblock_size = "64 KiB"\nzones = "%s..%s"\n' "$first" $((first + 2)) >fill.toml
    quietly zonda bench fill.toml --target "$device" --yes --quiet
    section "$name-reads" zonda probe "$device" --quiet --budget 8s --json
}

probed scsi_debug /dev/sda 4
grep -q "3 of the 128 zones are conventional" scsi_debug/zonda.toml || fail "$(cat scsi_debug/zonda.toml)"
quietly zonda zone reset /dev/sda --all --yes
served /dev/sda scsi_debug/zonda.toml
probed passthrough "$ng" 0
quietly zonda zone reset "$ng" --all --yes
served "$ng" passthrough/zonda.toml
probed nvme "$drive" 0
quietly zonda zone reset "$drive" --all --yes
served "$drive" nvme/zonda.toml
probed null_blk /dev/memory 0
served /dev/memory null_blk/zonda.toml
