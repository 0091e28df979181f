//! Standard output and standard error, without control characters of what is shown.

use std::fmt;
use std::io::{self, Write};

use crate::{clean::cleaned, error::CliError, screen};

/// A stream of text that keeps control characters away from the terminal.
#[derive(Debug)]
pub struct Output<W> {
    inner: W,
    colour: bool,
}

/// Standard output.
pub fn stdout() -> Output<io::Stdout> {
    let inner = io::stdout();
    let colour = screen::has_colour(&inner);
    Output { inner, colour }
}

/// Standard error.
pub fn stderr() -> Output<io::Stderr> {
    let inner = io::stderr();
    let colour = screen::has_colour(&inner);
    Output { inner, colour }
}

/// Writes a text to standard output.
///
/// # Errors
/// It cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::output)
}

/// Writes a line of `hopwise: ` and a text to standard error. Errors are ignored.
pub fn note(text: impl fmt::Display) {
    let _ = stderr().write_all(format!("hopwise: {text}\n").as_bytes());
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) {
            return self.inner.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        self.inner.write_all(cleaned(&text, self.colour).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_clean() {
        for (written, expected) in
            [("a\x1b]0;t\x07é\n", "a·]0;t·é\n"), ("plain ─ é\n", "plain ─ é\n"), ("plain\n", "plain\n")]
        {
            let mut out = Output { inner: Vec::new(), colour: false };
            out.write_all(written.as_bytes()).unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(&out.inner), expected);
        }
    }
}
