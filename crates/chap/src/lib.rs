//! DH-HMAC-CHAP: in-band authentication of NVMe hosts and controllers with shared secrets.
//!
//! NVMe Base Specification 2.0, section 8.13 (TP 8006), as Linux implements it since 6.0. Each side
//! is a state machine, messages in, messages out: [`HostAuth`] and [`ControllerAuth`]. [`Secret`]
//! is a shared secret, [`Policy`] has the allowed hashes and groups, [`AuthFailure`] is the reason
//! of a failure and its explanation for the peer.
//!
//! ```text
//! host                                        controller
//!   AUTH_Negotiate  hashes, groups     ------>
//!                                      <------  Challenge  C1, S1, g^x
//!   Reply  R1, C2, S2, g^y             ------>  R1 is verified
//!   R2 is verified                     <------  Success1  R2
//!   Success2                           ------>  R2 and Success2: only with a challenge C2
//! ```
//!
//! Not included: secure channel concatenation (TLS keys derived from the exchange), protocols other
//! than DH-HMAC-CHAP, the Authentication commands that carry the messages, and clocks: the owner
//! must time out a silent peer. Randomness is passed in as a seed ([`Random`]). AUTH_Negotiate is
//! not covered by any response, so a man in the middle can make the sides use the weakest hash and
//! group that both policies allow, but never a weaker one.
//!
//! ```
//! use zonda_chap::{ControllerAuth, ControllerAuthConfig, Hash, HostAuth, HostAuthConfig, Random, Secret, Step};
//!
//! let (host_nqn, subsystem_nqn) = ("nqn.2014-08.org.example:host", "nqn.2014-08.org.example:drive");
//! let host_secret = Secret::generate(Some(Hash::Sha256), [1; 64]); // use random bytes instead
//! let controller_secret = Secret::generate(None, [2; 64]);
//!
//! let mut config = HostAuthConfig::new(host_nqn, subsystem_nqn, host_secret.clone());
//! config.controller_secret = Some(controller_secret.clone());
//! let mut host = HostAuth::new(config, Random::new([3; 32]));
//! let mut config = ControllerAuthConfig::new(host_nqn, subsystem_nqn, host_secret);
//! config.controller_secret = Some(controller_secret);
//! let mut controller = ControllerAuth::new(config, Random::new([4; 32]));
//!
//! let negotiate = host.message().expect("the host begins");
//! assert_eq!(controller.receive(&negotiate), Ok(Step::Continue));
//! let challenge = controller.message().expect("a challenge");
//! assert_eq!(host.receive(&challenge), Ok(Step::Continue));
//! let reply = host.message().expect("a reply");
//! assert_eq!(controller.receive(&reply), Ok(Step::Continue));
//! let success1 = controller.message().expect("the controller's response");
//! assert_eq!(host.receive(&success1), Ok(Step::Authenticated));
//! let success2 = host.message().expect("the host confirms");
//! assert_eq!(controller.receive(&success2), Ok(Step::Authenticated));
//! assert!(host.is_authenticated() && controller.is_authenticated());
//! ```
#![forbid(unsafe_code)]

mod controller;
#[cfg(test)]
mod exchange_tests;
mod failure;
mod group;
mod hash;
mod host;
pub mod message;
mod policy;
mod primes;
mod random;
mod response;
mod secret;
mod step;

pub use controller::{ControllerAuth, ControllerAuthConfig};
pub use failure::{AuthFailure, Explanation};
pub use group::Group;
pub use hash::Hash;
pub use host::{HostAuth, HostAuthConfig};
pub use policy::{Policy, PolicyError};
pub use random::{Random, SEED_BYTES};
pub use secret::{Secret, SecretError};
pub use step::{Agreement, Step};
