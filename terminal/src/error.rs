//! The error type of commands: one sentence with the problem and its remedy.

use std::{error, fmt, io};

/// Error of a command. Users see only its `Display` form, so the message includes the remedy.
#[derive(Debug)]
pub struct CliError {
    message: String,
    source: Option<io::Error>,
}

impl CliError {
    /// Creates an error with this message, such as `cannot read a.pcap: no such file; check the path`.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// Creates an error from a failed I/O operation: `{what}: {error}; {remedy}`. Where the error alone determines the
    /// remedy, as with a full disk, `remedy` is not used.
    pub fn io(what: impl fmt::Display, error: io::Error, remedy: &str) -> Self {
        let remedy = settings::remedy(&error).unwrap_or(remedy);
        Self {
            message: format!("{what}: {}; {remedy}", reason(&error)),
            source: Some(error),
        }
    }

    /// Creates the error of a failed write to standard output. For a closed pipe (`| head`), [`crate::exit_code`] exits
    /// without a message.
    pub fn output(error: io::Error) -> Self {
        Self::io("cannot write the output", error, "check where it is sent")
    }

    /// Returns whether the output pipe was closed.
    pub fn is_closed_output(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns the cause in words, without the error number and with a lower-case first letter.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let message = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = message.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => text,
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for CliError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_of_a_full_disk_is_space() {
        let error = io::Error::from_raw_os_error(28);
        let shown = CliError::io("cannot write a.pcap", error, "check the path").to_string();
        assert_eq!(
            shown,
            "cannot write a.pcap: no space left on device; free space there"
        );
    }

    #[test]
    fn an_io_error_reads_as_one_sentence_with_a_remedy() {
        let error = io::Error::from_raw_os_error(2);
        let shown = CliError::io("cannot read a.pcap", error, "check the path").to_string();
        assert_eq!(
            shown,
            "cannot read a.pcap: no such file or directory; check the path"
        );
    }

    #[test]
    fn a_closed_pipe_is_not_a_reported_error() {
        assert!(CliError::output(io::ErrorKind::BrokenPipe.into()).is_closed_output());
        assert!(!CliError::output(io::ErrorKind::StorageFull.into()).is_closed_output());
        assert!(!CliError::new("no").is_closed_output());
    }
}
