# Sourced by every script that runs in a guest: steps, marked sections, connecting, requests to the host machine.
# Variables: TARGET (zonda or kernel), ADDRESS, PORT, EXTENT (smoke or soak). A command that fails ends the test.
set -euo pipefail
trap 'echo "FAILED at line $LINENO of ${BASH_SOURCE[0]##*/}: $BASH_COMMAND"; dmesg | tail -n 15' ERR
set -E

PREFIX=nqn.2026-01.io.zonda:
modprobe nvme-tcp
# While a connection is broken and the host has not detected it, a request is retried at once, up to this limit, and then fails.
# The default of five retries is exhausted before the host detects it.
echo 255 >/sys/module/nvme_core/parameters/max_retries

# step TEXT...: prints the next step, with the time since boot.
step() {
    echo "STEP $(cut -d' ' -f1 /proc/uptime) $*"
}

# in_soak: whether everything runs. Otherwise every kind of check once, with little data.
in_soak() { [ "$EXTENT" = soak ]; }

fail() {
    echo "FAILED: $*"
    dmesg | tail -n 15
    exit 1
}

# refused COMMAND...: it must fail; its output is in $said.
refused() {
    if said=$("$@" 2>&1); then
        fail "succeeded, but must fail: $*"
    fi
}

# refused_with TEXT COMMAND...: it must fail with this text. The text is only checked for zonda: nvmet reports errors as
# translated by Linux's block layer.
refused_with() {
    local words=$1
    shift
    refused "$@"
    if [ $TARGET = zonda ] && ! grep -qi "$words" <<<"$said"; then
        fail "$*: expected \"$words\", got: $said"
    fi
}

# quietly COMMAND...: prints nothing unless it fails.
quietly() {
    local said
    if ! said=$("$@" 2>&1); then
        echo "$said"
        fail "$*"
    fi
}

# section NAME COMMAND...: prints its output between markers for the harness.
section() {
    local name=$1
    shift
    local output status=0
    output=$("$@" 2>/tmp/errors) || status=$?
    if [ $status != 0 ]; then
        printf '%s\n%s\n' "$output" "$(cat /tmp/errors)"
        fail "$* ended with status $status"
    fi
    printf 'BEGIN %s\n%s\nEND %s\n' "$name" "$output" "$name"
}

# wait_until TEXT COMMAND...: for at most a minute.
wait_until() {
    local words=$1 tries=600
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "timeout after 60 s: $words"
        sleep 0.1
    done
}

# controller_of SUBSYSTEM: its controller of this host, as nvme0.
controller_of() {
    local nqn=$PREFIX$1 path
    for path in /sys/class/nvme/nvme*; do
        if [ "$(cat "$path/subsysnqn" "$path/hostnqn" 2>/dev/null)" = "$nqn"$'\n'"$HOST_NQN" ]; then
            echo "${path##*/}"
            return 0
        fi
    done
    return 1
}

is_live() {
    [ "$(cat "/sys/class/nvme/$1/state")" = live ]
}

# connect SUBSYSTEM [options of nvme connect]: as the host HOST_NQN, HOST_ID. Two I/O queues, although there is one CPU: Linux
# then uses one for writes and the other for reads.
connect() {
    local name=$1
    shift
    nvme connect -t tcp -a "$ADDRESS" -s "$PORT" -n "$PREFIX$name" --hostnqn "$HOST_NQN" --hostid "$HOST_ID" \
        --reconnect-delay 1 --keep-alive-tmo 5 --nr-io-queues 1 --nr-write-queues 1 "$@"
}

# disk_of CONTROLLER NAMESPACE: its disk. Linux numbers disks in the order in which its parallel scan finds them: nvme0n1 may be
# namespace 2.
disk_of() {
    local path
    for path in /sys/class/nvme/"$1"/"$1"n*; do
        if [ "$(cat "$path/nsid" 2>/dev/null)" = "$2" ] && [ -b "/dev/${path##*/}" ]; then
            echo "/dev/${path##*/}"
            return 0
        fi
    done
    return 1
}

# controller_with SERIAL: the number of the NVMe controller.
controller_with() {
    local path
    for path in /sys/class/nvme/nvme*; do
        if [[ "$(cat "$path/serial" 2>/dev/null)" == "$1"* ]]; then
            echo "${path##*/nvme}"
            return 0
        fi
    done
    return 1
}

# find_own_drive: namespace 1 of the drive of QEMU, as $drive by the block layer and as $ng by passthrough; namespace 2 as $ng2.
find_own_drive() {
    local number
    number=$(controller_with zonda) || return
    drive=$(disk_of "nvme$number" 1) || return
    ng=/dev/ng${drive#/dev/nvme}
    ng2=${ng%n*}n$((3 - ${drive##*n}))
    [ -c "$ng" ] && [ -c "$ng2" ]
}

# attach SUBSYSTEM NAMESPACES [options]: connects, waits for the disks, and sets $controller, $disk (namespace 1), $disk2.
attach() {
    local name=$1 namespaces=$2 id
    shift 2
    quietly connect "$name" "$@"
    controller=$(controller_of "$name")
    for id in $(seq "$namespaces"); do
        wait_until "namespace $id has a disk" disk_of "$controller" "$id"
    done
    disk=$(disk_of "$controller" 1)
    disk2=$(disk_of "$controller" 2) || disk2=
    controller=/dev/$controller
}

detach() {
    quietly nvme disconnect -n "$PREFIX$1"
}

# Host NQN and host ID for this guest: another number, another host.
be_host() {
    HOST_ID=$(printf '00000000-0000-4000-8000-%012d' "$1")
    HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:$HOST_ID
}
be_host "${HOST_NUMBER:-1}"

# ask REQUEST: of the host machine, which executes it before this returns. Not used with the guest's own target.
ask() {
    [ $TARGET = zonda ] || return 0
    echo "HOST: $*"
    read -r -t 100 _ </dev/hvc0 || fail "no reply from the host machine"
}

# restart_server HOW SUBSYSTEM: the server is stopped and restarted; returns when this host is connected again. In a soak the
# server is down for a second, so that an attempt to connect fails.
restart_server() {
    local controller
    controller=$(controller_of "$2")
    if [ $TARGET = kernel ]; then
        rm /sys/kernel/config/nvmet/ports/1/subsystems/*
        sleep 1
        publish
    else
        if in_soak; then ask "$1 1000"; else ask "$1 0"; fi
    fi
    wait_until "the host is reconnected" is_live "$controller"
}

# By SIGKILL, and by SIGTERM.
kill_server() { restart_server kill-server "$1"; }
stop_server() { restart_server stop-server "$1"; }

# ---- the guest's own target, instead of zonda ----

nvmet=/sys/kernel/config/nvmet
null_disks=0

serve_subsystem() { # NQN any-host|named-hosts
    mkdir $nvmet/subsystems/"$1"
    [ "$2" = named-hosts ] || echo 1 >$nvmet/subsystems/"$1"/attr_allow_any_host
}

serve_namespace() { # NQN ID zoned|conventional ZONES CAPACITY_MIB
    null_disks=$((null_disks + 1))
    local disk=/sys/kernel/config/nullb/null$null_disks zone_mib=1
    while [ $zone_mib -lt "$5" ]; do zone_mib=$((zone_mib * 2)); done
    mkdir $disk
    echo 4096 >$disk/blocksize
    echo 1 >$disk/memory_backed
    if [ "$3" = zoned ]; then
        echo 1 >$disk/zoned
        echo $zone_mib >$disk/zone_size
        echo "$5" >$disk/zone_capacity
        echo 14 >$disk/zone_max_open
        echo 14 >$disk/zone_max_active
    fi
    echo $(($4 * zone_mib)) >$disk/size
    echo 1 >$disk/power
    mkdir $nvmet/subsystems/"$1"/namespaces/"$2"
    echo /dev/null$null_disks >$nvmet/subsystems/"$1"/namespaces/"$2"/device_path
    echo 1 >$nvmet/subsystems/"$1"/namespaces/"$2"/enable
}

serve_host() { # NQN HOST_NQN SECRET|- CONTROLLER_SECRET|-
    local host=$nvmet/hosts/$2
    [ -d "$host" ] || mkdir "$host"
    [ "$3" = - ] || echo "$3" >"$host/dhchap_key"
    [ "$4" = - ] || echo "$4" >"$host/dhchap_ctrl_key"
    ln -s "$host" $nvmet/subsystems/"$1"/allowed_hosts/
}

publish() {
    local subsystem
    for subsystem in $nvmet/subsystems/"$PREFIX"*; do
        ln -s "$subsystem" $nvmet/ports/1/subsystems/
    done
}

if [ $TARGET = kernel ]; then
    modprobe null_blk nr_devices=0
    modprobe nvmet-tcp
    mkdir $nvmet/ports/1
    echo tcp >$nvmet/ports/1/addr_trtype
    echo ipv4 >$nvmet/ports/1/addr_adrfam
    echo "$ADDRESS" >$nvmet/ports/1/addr_traddr
    echo "$PORT" >$nvmet/ports/1/addr_trsvcid
    . /test/serve.sh
    publish
fi
