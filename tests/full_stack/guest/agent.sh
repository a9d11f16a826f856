# The guest's first script: runs other scripts, one after the other, until the host machine turns the guest off.
#
# A job arrives on the console as lines of shell between GUEST-JOB and GUEST-RUN. It runs in a separate shell. Afterwards its
# processes, mounts, connections and files are removed. GUEST-DONE reports its exit status. If the cleanup fails, the guest
# exits, and the host machine boots another one.
exec 3</dev/hvc0

uptime() { cut -d' ' -f1 /proc/uptime; }

# Leftovers of a job, a line each.
mounts() { sed -n 's,^[^ ]* \(/mnt/[^ ]*\) .*,\1,p' /proc/mounts; }
controllers() { # Not those of the machine.
    local path
    for path in /sys/class/nvme/nvme*; do
        [ ! -e "$path" ] || [ "$(cat "$path/transport")" = pcie ] || echo "${path##*/}"
    done
}

clean_up() {
    # All processes except the first one and this one.
    kill -KILL -1 2>/dev/null
    local tries=100 path
    while [ -n "$(mounts)" ] || [ -n "$(controllers)" ]; do
        # A file system whose server is unreachable is unmounted only when its controller is removed.
        for path in $(mounts); do umount -l "$path"; done
        [ -z "$(controllers)" ] || timeout 20 nvme disconnect-all
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        [ -z "$(controllers)" ] || sleep 0.1
    done
    rm -rf /tmp/* /mnt/*
}

while true; do
    echo "GUEST-READY $(uptime)"
    # A reply that the last job did not read is not part of this one.
    while IFS= read -r line <&3 && [ "$line" != GUEST-JOB ]; do :; done
    while IFS= read -r line <&3 && [ "$line" != GUEST-RUN ]; do
        printf '%s\n' "$line"
    done >/run/job.sh
    dmesg -c >/dev/null
    bash /run/job.sh 3<&-
    status=$?
    clean_up || { echo "cannot clean up the guest: $(mounts) $(controllers)"; exit 1; }
    # With a newline of its own: the job's last line may lack one.
    printf '\nGUEST-DONE %s after %s seconds\n' $status "$(uptime)"
done
