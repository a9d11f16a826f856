# Two concurrent hosts in one guest with two host NQNs: like hosts.sh, where each host has its own guest. DIGESTS are options of
# nvme connect for host 1.

disks=
for number in 1 2; do
    step "connect host $number"
    be_host $number
    if [ $number = 1 ]; then options=$DIGESTS; else options=; fi
    # shellcheck disable=SC2086  # a list of words
    attach own-$number 1 $options
    disks="$disks $disk"
    # shellcheck disable=SC2086
    attach shared 1 $options
    disks="$disks $disk"
done
read -r own_1 shared_1 own_2 shared_2 <<<"$disks"
hosts=$(sort -u /sys/class/nvme/*/hostnqn)
section hosts echo "$hosts"

verified="--zonemode=zbd --direct=1 --ioengine=libaio --rw=write --bs=64k --iodepth=8 --max_open_zones=6 --verify=crc32c --do_verify=1 --verify_fatal=1"
for time in once "once more, overwriting"; do
    step "both at once, verified: $time"
    quietly fio $verified --size=1z --name=own-1 --filename=$own_1 --name=shared-1 --filename=$shared_1 --name=own-2 --filename=$own_2 \
        --name=shared-2 --filename=$shared_2 --offset=16z
done
zone_sectors=$(cat /sys/block/${shared_1#/dev/}/queue/chunk_sectors)
section blkzone-0 blkzone report -c 1 $shared_2
section blkzone-16 blkzone report -o $((16 * zone_sectors)) -c 1 $shared_1

step disconnect
detach own-1
detach own-2
detach shared
