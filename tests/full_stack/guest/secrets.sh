# Access control. Subsystem `guarded` lists its hosts, by number (see tests/linux/secrets.rs, which passes the secrets, too):
# 1 no secret; 11, 12, 13 a secret for SHA-256, 384, 512; 20 a secret, and one of the controller's.

auth_method() { dmesg | sed -n 's/.*authenticated with hash \(.*\)/\1/p' | tail -n 1; }

step "a host that is not listed"
be_host 99
refused connect guarded
refused connect guarded --dhchap-secret "$SECRET_256"

step "a host without a secret"
be_host 1
attach guarded 1
quietly dd if=$disk of=/dev/null bs=4k count=4 iflag=direct
detach guarded

# (nvmet disconnects so soon after a wrong secret that Linux waits for its admin timeout.)
step "secrets of each kind"
if in_soak; then kinds="256 384 512"; else kinds=256; fi
for kind in $kinds; do
    case $kind in 256) be_host 11 ;; 384) be_host 12 ;; 512) be_host 13 ;; esac
    secret=SECRET_$kind
    refused connect guarded
    refused connect guarded --dhchap-secret "$SECRET_WRONG"
    attach guarded 1 --dhchap-secret "${!secret}"
    quietly dd if=$disk of=/dev/null bs=4k count=4 iflag=direct
    section method-$kind auth_method
    quietly nvme reset $controller
    wait_until "live again" is_live ${controller#/dev/}
    detach guarded
done

step "bidirectional authentication"
be_host 20
refused connect guarded --dhchap-secret "$SECRET_WRONG" --dhchap-ctrl-secret "$SECRET_CONTROLLER"
refused connect guarded --dhchap-secret "$SECRET_BOTH" --dhchap-ctrl-secret "$SECRET_WRONG"
attach guarded 1 --dhchap-secret "$SECRET_BOTH" --dhchap-ctrl-secret "$SECRET_CONTROLLER"
dmesg | grep -q 'controller authenticated' || fail "the controller did not authenticate"
section method-both auth_method
ask status

step "the server is killed; the host authenticates again"
kill_server guarded
quietly dd if=$disk of=/dev/null bs=4k count=4 iflag=direct
detach guarded
# Authentication of the controller is optional for the host.
attach guarded 1 --dhchap-secret "$SECRET_BOTH"
detach guarded

# zonda always chooses a group by itself.
if in_soak; then
    step "a Diffie-Hellman group"
    if [ $TARGET = kernel ]; then echo ffdhe3072 >$nvmet/hosts/"$HOST_NQN"/dhchap_dhgroup; fi
    attach guarded 1 --dhchap-secret "$SECRET_BOTH" --dhchap-ctrl-secret "$SECRET_CONTROLLER"
    section method-group auth_method
    detach guarded
fi
