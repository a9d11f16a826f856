//! Creates an image: `create_image DIR PROFILE ZONES CAPACITY`, like `zonda drive create`, for
//! tests of programs built on the C interface.

use std::path::Path;
use std::process::ExitCode;

use zonda_config::ByteSize;
use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, profile, zones, capacity] = &arguments[..] else {
        eprintln!("usage: create_image DIR PROFILE ZONES CAPACITY_BYTES");
        return ExitCode::from(2);
    };
    let (Ok(zones), Ok(capacity)) = (zones.parse(), capacity.parse()) else {
        eprintln!("ZONES and CAPACITY_BYTES must be numbers");
        return ExitCode::from(2);
    };
    match create(directory, profile, zones, capacity) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn create(directory: &str, profile: &str, zones: u32, capacity: u64) -> Result<(), String> {
    let read_file = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let profiles = Profiles::new(BUILTIN, &read_file);
    let spec = zonda_devices::sized(profile, Some(zones), Some(ByteSize(capacity)), &profiles)
        .map_err(|error| error.error.message.clone())?;
    let drive = spec.plan(&profiles).map_err(|error| error.error.message.clone())?;
    zonda_devices::create_image(Path::new(directory), &drive).map_err(|error| error.to_string())?;
    Ok(())
}
