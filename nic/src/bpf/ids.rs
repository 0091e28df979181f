//! IDs of programs and maps, to check whether the kernel still has them.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::system::{Number, bpf, command};

/// The kernel's IDs of programs and maps. It reuses an ID only after all others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ids {
    /// IDs of the programs.
    pub programs: Vec<u32>,
    /// IDs of the maps.
    pub maps: Vec<u32>,
}

impl Ids {
    /// Those that the kernel still has. It frees unreferenced ones with a delay, so call this again if there are some.
    ///
    /// # Errors
    /// This needs CAP_SYS_ADMIN.
    pub fn alive(&self) -> io::Result<Self> {
        let alive = |ids: &[u32], open: u32| -> io::Result<Vec<u32>> {
            let mut found = Vec::new();
            for &id in ids {
                match exists(id, open) {
                    Ok(true) => found.push(id),
                    Ok(false) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        Ok(Self {
            programs: alive(&self.programs, command::PROG_BY_ID)?,
            maps: alive(&self.maps, command::MAP_BY_ID)?,
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty()
    }

    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let (programs, maps) = text.trim().split_once(';')?;
        let numbers = |text: &str| -> Option<Vec<u32>> {
            text.split_whitespace().map(|word| word.parse().ok()).collect()
        };
        Some(Self {
            programs: numbers(programs)?,
            maps: numbers(maps)?,
        })
    }
}

impl fmt::Display for Ids {
    /// Writes the programs' IDs, a semicolon, and the maps' IDs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.programs.iter().try_for_each(|id| write!(f, "{id} "))?;
        f.write_str(";")?;
        self.maps.iter().try_for_each(|id| write!(f, " {id}"))
    }
}

fn exists(id: u32, open: u32) -> io::Result<bool> {
    let mut arguments = Number {
        id,
        next: 0,
        flags: 0,
    };
    // SAFETY: no addresses.
    match unsafe { bpf(open, &mut arguments) } {
        Ok(fd) => {
            // SAFETY: a descriptor that the kernel has just made for us; it is closed at once.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_and_read() {
        for ids in [
            Ids {
                programs: vec![1, 22],
                maps: vec![333, 4],
            },
            Ids::default(),
        ] {
            assert_eq!(Ids::parse(&ids.to_string()), Some(ids));
        }
        assert_eq!(Ids::parse("1 2"), None);
        assert_eq!(Ids::parse("1 x; 2"), None);
    }
}
