# Two hosts, in one guest, share two namespaces of subsystem `a` and reserve them: namespace 1, zoned, through nvme-cli, and
# namespace 2, conventional, through the ioctls of Linux's block layer. Their server is killed and stopped meanwhile.

if [ $TARGET = kernel ]; then
    # Linux's own target supports reservations from 6.13 on.
    step "skipped: the target of this kernel does not support reservations"
    exit 0
fi

step connect
disks=
for number in 1 2; do
    be_host $number
    attach a 2
    disks="$disks ${controller#/dev/} $disk $disk2"
done
read -r controller_1 zoned_1 plain_1 controller_2 zoned_2 plain_2 <<<"$disks"

dd if=/dev/urandom of=/tmp/block bs=4k count=1 2>/dev/null
write_block() { quietly nvme write "$1" --start-block=0 --block-count=0 --data-size=4096 --data=/tmp/block; }
read_block() { quietly nvme read "$1" --start-block=0 --block-count=0 --data-size=4096 --data=/tmp/found; }
conflicts() { refused_with "reservation conflict" "$@"; }
write_conflicts() { conflicts nvme write "$1" --start-block=0 --block-count=0 --data-size=4096 --data=/tmp/block; }
read_conflicts() { conflicts nvme read "$1" --start-block=0 --block-count=0 --data-size=4096 --data=/tmp/found; }
report() { section "$1" nvme resv-report "$2" --eds -o json; }
# Through the block layer, which has its own error for it (EBADE).
block_layer_conflicts() { refused_with "invalid exchange" dd if=/tmp/block of="$1" bs=4k count=1 oflag=direct; }

# again HOW: the server is stopped and restarted; returns when both hosts are connected.
again() {
    be_host 2
    "$1" a
    wait_until "host 1 is reconnected" is_live $controller_1
}

step "host 1 reserves both namespaces, one by commands and one by ioctls"
quietly nvme resv-register $zoned_1 --nrkey 0x11 --cptpl 3
quietly nvme resv-acquire $zoned_1 --crkey 0x11 --rtype 1 --racqa 0
quietly blkpr -c register -k 0x11 $plain_1
quietly blkpr -c reserve -k 0x11 -t exclusive-access $plain_1

# only_host_1: it has full access, and the other one may only read namespace 1.
only_host_1() {
    write_conflicts $zoned_2
    refused blkzone reset -c 1 $zoned_2
    read_block $zoned_2
    write_conflicts $plain_2
    read_conflicts $plain_2
    block_layer_conflicts $plain_2
    quietly blkzone reset -c 1 $zoned_1
    write_block $zoned_1
    write_block $plain_1
    read_block $plain_1
}
only_host_1
report zoned-before $zoned_2
report plain-before $plain_2

step "the server is killed, and host 2 is still excluded"
again kill_server
only_host_1
report zoned-killed $zoned_2
report plain-killed $plain_2

step "host 2 preempts host 1"
quietly nvme resv-register $zoned_2 --nrkey 0x22
quietly nvme resv-acquire $zoned_2 --crkey 0x22 --prkey 0x11 --rtype 1 --racqa 2
quietly blkpr -c register -k 0x22 $plain_2
# Linux sends the "old" key as the sender's own (CRKEY), and the "new" one as that of the host to preempt (PRKEY).
refused blkpr -c preempt -K 0x22 -k 0x33 -t write-exclusive $plain_2
refused blkpr -c preempt -K 0x11 -k 0x11 -t write-exclusive $plain_2
write_block $plain_1
quietly blkpr -c preempt -K 0x22 -k 0x11 -t write-exclusive $plain_2

# only_host_2: it holds both namespaces, and the other one may only read.
only_host_2() {
    write_conflicts $zoned_1
    write_conflicts $plain_1
    block_layer_conflicts $plain_1
    read_block $plain_1
    quietly blkzone reset -c 1 $zoned_2
    write_block $zoned_2
    write_block $plain_2
}
only_host_2
if in_soak; then
    again kill_server
    only_host_2
    again stop_server
    only_host_2
fi
report zoned-taken $zoned_1
report plain-taken $plain_1

step "released reservations stay released, and non-persistent ones end with the server"
quietly blkpr -c release -k 0x22 -t write-exclusive $plain_2
write_block $plain_1
quietly nvme resv-register $zoned_2 --nrkey 0x22 --cptpl 2
write_conflicts $zoned_1
again kill_server
write_block $plain_1
quietly blkzone reset -c 1 $zoned_1
write_block $zoned_1
report zoned-ended $zoned_1
report plain-ended $plain_1
quietly blkpr -c clear -k 0x22 $plain_2
report plain-cleared $plain_1

step disconnect
detach a
