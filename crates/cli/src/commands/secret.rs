//! `zonda secret`: generates secrets for in-band authentication.

use clap::{Args, ValueEnum};
use zonda_chap::{Hash, Secret};
use zonda_devices::random;

use crate::errors::Failure;
use crate::output::print;

pub(crate) const LONG_ABOUT: &str = "Generate a secret for in-band authentication of hosts and controllers (DH-HMAC-CHAP, \
NVMe Base Specification 2.0, section 8.13).

Give the secret to the host (nvme connect --dhchap-secret), and store it in a file that zonda.toml names as secret_file. \
The file must be readable by the server only.";

const EXAMPLES: &str = "Examples:
  (umask 077; zonda secret > db1.key)
  nvme connect -t tcp -a HOST -s 4420 -n NQN --dhchap-secret \"$(cat db1.key)\"";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SecretArgs {
    /// Hash function of the secret, which determines its length
    #[arg(long, value_enum, default_value_t = HashArg::Sha256)]
    hash: HashArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HashArg {
    Sha256,
    Sha384,
    Sha512,
}

pub(crate) fn run(args: &SecretArgs) -> Result<(), Failure> {
    let hash = match args.hash {
        HashArg::Sha256 => Hash::Sha256,
        HashArg::Sha384 => Hash::Sha384,
        HashArg::Sha512 => Hash::Sha512,
    };
    let random = random::bytes().map_err(|error| Failure::input(error.message, error.help))?;
    print(&format!("{}\n", Secret::generate(Some(hash), random)))
}
