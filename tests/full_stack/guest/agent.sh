# The guest's first script: runs other scripts, one after the other, until the machine outside turns the guest off.
#
# A job comes on the console as lines of shell between GUEST-JOB and GUEST-RUN. It runs in a shell of its own. Afterwards nothing
# of it is left: no process, mount, connection or file. GUEST-DONE tells its exit status. Where something cannot be removed,
# the guest ends, and the machine outside boots another one.
exec 3</dev/hvc0

uptime() { cut -d' ' -f1 /proc/uptime; }

# What a job left, a line each.
mounts() { sed -n 's,^[^ ]* \(/mnt/[^ ]*\) .*,\1,p' /proc/mounts; }
controllers() { (shopt -s nullglob && cd /sys/class/nvme 2>/dev/null && echo nvme*); }

clean_up() {
    # Everything but the first process and this one.
    kill -KILL -1 2>/dev/null
    local tries=100 path
    while [ -n "$(mounts)" ] || [ -n "$(controllers)" ]; do
        # A file system whose server is away is unmounted only when its controller is removed.
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
    # An answer that the last job did not read is not part of this one.
    while IFS= read -r line <&3 && [ "$line" != GUEST-JOB ]; do :; done
    while IFS= read -r line <&3 && [ "$line" != GUEST-RUN ]; do
        printf '%s\n' "$line"
    done >/run/job.sh
    dmesg -c >/dev/null
    bash /run/job.sh 3<&-
    status=$?
    clean_up || { echo "the guest cannot be cleaned up: $(mounts) $(controllers)"; exit 1; }
    # With a newline of its own: the job's last line may lack one.
    printf '\nGUEST-DONE %s after %s seconds\n' $status "$(uptime)"
done
