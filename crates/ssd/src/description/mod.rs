//! A drive as a file describes it: the name of a profile, and changes to its numbers.
//!
//! ```
//! use zonda_config::parse;
//! use zonda_ssd::description::{DriveSpec, Profiles};
//!
//! let profiles = Profiles::without_files(zonda_profiles::BUILTIN);
//! let spec: DriveSpec = parse("profile = \"tiny\"\nset = { \"geometry.zones\" = 8 }").expect("the text is valid");
//! let drive = spec.plan(&profiles).expect("the drive can be built");
//! assert_eq!(drive.profile().geometry().zone_count, 8);
//!
//! let error = profiles.find("tinny").expect_err("there is no such profile");
//! assert!(error.help.expect("a remedy").starts_with("did you mean \"tiny\"?"));
//! ```

mod error;
mod profiles;
mod set;
mod spec;

pub use error::{ErrorSource, SpecError};
pub use profiles::{FoundProfile, Profiles};
pub use spec::{AnyLayer, DrivePlan, DriveSpec, PayloadSpec};
