# One of two concurrent hosts. Subsystem `own-N` is for this host only; of `shared`, which has the timing of a real drive,
# this host has the zones from FIRST_ZONE on. DIGESTS are options of nvme connect.

step connect
# shellcheck disable=SC2086  # a list of words
attach own-$HOST_NUMBER 1 $DIGESTS
own=$disk
# shellcheck disable=SC2086
attach shared 1 $DIGESTS
shared=$disk

step "both at once, verified"
verified="--zonemode=zbd --direct=1 --ioengine=libaio --rw=write --bs=64k --iodepth=8 --max_open_zones=6 --verify=crc32c --do_verify=1 --verify_fatal=1"
quietly fio $verified --name=own --filename=$own --size=3z --name=shared --filename=$shared --offset=${FIRST_ZONE}z --size=3z

step "and once more, overwriting"
quietly fio $verified --name=own --filename=$own --size=2z --name=shared --filename=$shared --offset=${FIRST_ZONE}z --size=2z
section blkzone blkzone report -o $((FIRST_ZONE * $(cat /sys/block/${shared#/dev/}/queue/chunk_sectors))) -c 3 $shared

step disconnect
detach own-$HOST_NUMBER
detach shared
