//! A script with its variables, in the format of the guest's agent.

/// The markers around a job on the console (guest/agent.sh).
const BEGIN: &str = "GUEST-JOB";
const END: &str = "GUEST-RUN";

/// The extent of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every kind of check, once, with little data.
    Smoke,
    /// Everything.
    Soak,
}

impl Extent {
    /// Capacity of small zones, in MiB: in a smoke test they are full with little data.
    #[must_use]
    pub fn small_zone_mib(self) -> u32 {
        if self.is_soak() { 8 } else { 2 }
    }

    /// Whether everything runs.
    #[must_use]
    pub fn is_soak(self) -> bool {
        self == Extent::Soak
    }
}

/// A script of `guest/`, with its variables and files.
#[derive(Clone, Debug)]
pub struct Job {
    script: String,
    variables: String,
    files: String,
}

impl Job {
    /// Runs `guest/SCRIPT`.
    #[must_use]
    pub fn new(script: &str) -> Job {
        Job { script: script.to_owned(), variables: String::new(), files: String::new() }
    }

    /// Adds a variable.
    ///
    /// # Panics
    /// If the value contains a single quote or a line break.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Job {
        assert!(!value.contains(['\'', '\n']), "{name} cannot be quoted: {value}");
        self.variables += &format!("{name}='{value}'\n");
        self
    }

    /// Adds a file in `/test`.
    #[must_use]
    pub fn file(mut self, name: &str, contents: &str) -> Job {
        self.files += &format!("cat >/test/{name} <<'END OF FILE'\n{contents}\nEND OF FILE\n");
        self
    }

    /// The name of the script.
    #[must_use]
    pub fn script(&self) -> &str {
        &self.script
    }

    /// The lines for the console.
    pub(crate) fn text(&self) -> String {
        let Job { script, variables, files } = self;
        format!("{BEGIN}\n{variables}{files}. /test/lib.sh\n. /test/{script}\n{END}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_shell_script_between_two_markers() {
        let job = Job::new("a.sh").variable("PORT", "4420").file("serve.sh", "one\ntwo");
        let lines = "GUEST-JOB\nPORT='4420'\ncat >/test/serve.sh <<'END OF FILE'\none\ntwo\nEND OF FILE\n. /test/lib.sh\n. /test/a.sh\nGUEST-RUN\n";
        assert_eq!(job.text(), lines);
    }

    #[test]
    #[should_panic(expected = "cannot be quoted")]
    fn a_variable_cannot_end_its_quotes() {
        let _ = Job::new("a.sh").variable("X", "'; reboot; '");
    }
}
