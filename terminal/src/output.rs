//! Standard output and standard error. Text for people, and anything on a terminal, is written without control characters.
//! Data for programs keeps them: CSV unchanged unless a terminal shows it, JSON escaped ([`json::escaped`]), which suits
//! both.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::{clean::cleaned, error::CliError, json, screen};

/// Output stream that keeps control characters away from the terminal.
#[derive(Debug)]
pub struct Output<W> {
    inner: W,
    colour: bool,
    json: bool,
}

/// Opens standard output, for text.
pub fn stdout() -> Output<io::Stdout> {
    let inner = io::stdout();
    let colour = screen::has_colour(&inner);
    Output {
        inner,
        colour,
        json: false,
    }
}

/// Opens standard error, for text.
pub fn stderr() -> Output<io::Stderr> {
    let inner = io::stderr();
    let colour = screen::has_colour(&inner);
    Output {
        inner,
        colour,
        json: false,
    }
}

/// Opens standard error for JSON lines: control characters are escaped instead of replaced.
pub fn stderr_json() -> Output<io::Stderr> {
    Output {
        json: true,
        ..stderr()
    }
}

/// Converts the outcome of a command: prints an error, with exit code 2. A closed output pipe is a success.
pub fn exit_code(outcome: Result<ExitCode, CliError>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            note(error);
            ExitCode::from(2)
        }
    }
}

/// Writes a text to standard output.
///
/// # Errors
/// The text cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::output)
}

/// Writes data for programs to standard output: unchanged, or cleaned like text if a terminal shows it.
///
/// # Errors
/// The data cannot be written.
pub fn print_data(data: &str) -> Result<(), CliError> {
    let mut out = io::stdout();
    if out.is_terminal() {
        return print(data);
    }
    out.write_all(data.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::output)
}

/// Writes `hopwise: `, a text and a line end to standard error. Errors are ignored.
pub fn note(text: impl fmt::Display) {
    let _ = stderr().write_all(format!("hopwise: {text}\n").as_bytes());
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')) {
            return self.inner.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let safe_text = if self.json {
            json::escaped(&text)
        } else {
            cleaned(&text, self.colour)
        };
        self.inner.write_all(safe_text.as_bytes())?;
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
        for (written, as_text, as_json) in [
            ("a\x1b]0;t\x07é\n", "a·]0;t·é\n", "a\\u001b]0;t\\u0007é\n"),
            ("plain ─ é\n", "plain ─ é\n", "plain ─ é\n"),
            ("plain\n", "plain\n", "plain\n"),
        ] {
            for (json, expected) in [(false, as_text), (true, as_json)] {
                let mut out = Output {
                    inner: Vec::new(),
                    colour: false,
                    json,
                };
                out.write_all(written.as_bytes()).unwrap_or_default();
                assert_eq!(String::from_utf8_lossy(&out.inner), expected);
            }
        }
    }
}
