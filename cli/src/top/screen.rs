//! The terminal of `hopwise top`: the alternate screen, drawing without flicker, and decoding of keys.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::{thread, time::Duration};

use terminal::{CliError, Terminal};

/// Maximum gap between two bytes of one key; a longer one after ESC means the Escape key.
const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(40);
/// Maximum number of bytes in an escape sequence.
const MAX_SEQUENCE_LEN: usize = 16;

/// Key that was pressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
}

/// Receiver of the bytes of pressed keys.
pub(super) struct Keys {
    bytes: Receiver<u8>,
}

impl Keys {
    /// Waits for the next key, at most for `wait`.
    pub(super) fn next(&self, wait: Duration) -> Result<Key, RecvTimeoutError> {
        let first = self.bytes.recv_timeout(wait)?;
        Ok(key(first, || self.bytes.recv_timeout(SEQUENCE_TIMEOUT).ok()))
    }
}

/// Decodes a key from its first byte. `next_byte` returns the next byte, or `None` if it does not follow at once.
fn key(first: u8, mut next_byte: impl FnMut() -> Option<u8>) -> Key {
    match first {
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        0x1b => match next_byte() {
            Some(b'[' | b'O') => sequence(next_byte),
            _ => Key::Escape,
        },
        0..0x80 => Key::Char(char::from(first)),
        _ => {
            // The number of leading ones in the first byte is the length of a UTF-8 character.
            let length = (first.leading_ones() as usize).clamp(1, 4);
            let bytes: Vec<u8> = std::iter::once(first)
                .chain(std::iter::from_fn(next_byte).take(length - 1))
                .collect();
            Key::Char(
                String::from_utf8_lossy(&bytes)
                    .chars()
                    .next()
                    .unwrap_or('\u{fffd}'),
            )
        }
    }
}

/// Decodes the rest of an escape sequence, such as `[A`, `[5~` or, with a modifier, `[1;5C`. An unknown sequence becomes NUL,
/// which does nothing.
fn sequence(next_byte: impl FnMut() -> Option<u8>) -> Key {
    // The first number names the key, a second one behind a semicolon the modifiers.
    let mut number = 0_u16;
    let mut is_modifier = false;
    for byte in std::iter::from_fn(next_byte).take(MAX_SEQUENCE_LEN) {
        match byte {
            b'0'..=b'9' if !is_modifier => {
                number = number.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
            }
            b';' => is_modifier = true,
            b'A' => return Key::Up,
            b'B' => return Key::Down,
            b'C' => return Key::Right,
            b'D' => return Key::Left,
            b'H' => return Key::Home,
            b'F' => return Key::End,
            b'~' => {
                return match number {
                    1 | 7 => Key::Home,
                    4 | 8 => Key::End,
                    5 => Key::PageUp,
                    6 => Key::PageDown,
                    _ => Key::Char('\0'),
                };
            }
            0x40..0x7f => return Key::Char('\0'),
            _ => {}
        }
    }
    Key::Char('\0')
}

/// Overwrites the previous screen line by line, which avoids the flicker of clearing it.
pub(super) fn draw(text: &str, terminal: Terminal) -> Result<(), CliError> {
    let mut out = String::from("\x1b[H");
    for line in terminal
        .clean(text)
        .lines()
        .take(terminal.height.saturating_sub(1))
    {
        out.push_str(cut(line, terminal.width));
        out.push_str("\x1b[0m\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    let mut stdout = io::stdout();
    stdout
        .write_all(out.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(CliError::output)
}

/// Cuts a line to `width` characters, not counting colour sequences. A line that wraps would shift the lines below it.
fn cut(line: &str, width: usize) -> &str {
    let mut columns = 0;
    let mut in_escape = false;
    for (at, c) in line.char_indices() {
        match c {
            '\x1b' => in_escape = true,
            'm' if in_escape => in_escape = false,
            _ if in_escape => {}
            _ if columns == width => return &line[..at],
            _ => columns += 1,
        }
    }
    line
}

/// Alternate screen with unbuffered keys. Dropping it restores the terminal.
///
/// `stty` changes the terminal's mode, because `tcsetattr` would need unsafe code here.
pub(super) struct Screen {
    mode: Option<String>,
}

impl Screen {
    pub(super) fn enter() -> Self {
        let mode = stty(&["-g"]).map(|mode| mode.trim().to_string());
        if mode.is_some() {
            // Without isig, Ctrl-C arrives as a character and is handled like `q`.
            stty(&["-icanon", "-echo", "-isig", "min", "1"]);
        }
        print!("\x1b[?1049h\x1b[?25l\x1b[2J");
        Self { mode }
    }

    /// Starts a thread that reads keys; it ends with the process.
    pub(super) fn keys(&self) -> Keys {
        let (sender, bytes) = mpsc::channel();
        if self.mode.is_some() {
            thread::spawn(move || {
                for byte in io::stdin().lock().bytes() {
                    let Ok(byte) = byte else { break };
                    if sender.send(byte).is_err() {
                        break;
                    }
                }
            });
        }
        Keys { bytes }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        // Errors are ignored: the terminal may be gone.
        let _ = io::stdout().flush();
        if let Some(mode) = &self.mode {
            stty(&[mode]);
        }
    }
}

fn stty(args: &[&str]) -> Option<String> {
    let output = Command::new("stty")
        .args(args)
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_their_bytes() {
        let read = |bytes: &[u8]| {
            let mut rest = bytes.iter().copied();
            let first = rest.next().unwrap();
            let found = key(first, || rest.next());
            (found, rest.count())
        };
        let keys: [(&[u8], Key); 15] = [
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[1;5C", Key::Right),
            (b"\x1b[4~", Key::End),
            (b"\x1b[H", Key::Home),
            (b"\x1b[20~", Key::Char('\0')),
            (b"\x1b[15~", Key::Char('\0')),
            (b"\x1b[6;5~", Key::PageDown),
            (b"\x1b", Key::Escape),
            (b"\x7f", Key::Backspace),
            (b"\r", Key::Enter),
            (b"q", Key::Char('q')),
            ("é".as_bytes(), Key::Char('é')),
            (b"\xff", Key::Char('\u{fffd}')),
        ];
        for (bytes, expected) in keys {
            assert_eq!(read(bytes), (expected, 0), "{bytes:?}");
        }
    }

    #[test]
    fn a_line_is_cut_where_the_screen_ends() {
        assert_eq!(cut("\x1b[1mab\x1b[0mcd", 3), "\x1b[1mab\x1b[0mc");
        assert_eq!([cut("äbc", 1), cut("abc", 3), cut("", 3)], ["ä", "abc", ""]);
    }
}
