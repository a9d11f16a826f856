//! Remedies for keys and values that are not in a job file, but that users know from elsewhere.

use zonda_config::ConfigError;

/// The same error with the remedy for what was probably meant.
pub(crate) fn hinted(error: ConfigError) -> ConfigError {
    let help = match error.message.as_str() {
        "unknown key \"scheduler\"" => {
            "a scheduler is a layer: write a table [[drive.layer]] with kind = \"scheduler\" and policy = \"mq-deadline\"; \
             docs/guide/stacks.md describes its keys"
        }
        "unknown value \"raid10\" for \"level\"" | "unknown value \"raid1+0\" for \"level\"" => {
            "the level that stripes blocks and keeps copies is \"raid01\", a mirrored stripe; docs/guide/volumes.md describes \
             the levels"
        }
        _ => return error,
    };
    error.help(help)
}
