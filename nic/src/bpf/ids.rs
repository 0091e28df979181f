//! IDs of BPF programs and maps, to check whether the kernel still has them.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use crate::sys::bpf::{map_by_id, program_by_id};

/// The kernel's IDs of programs and maps. It reuses an ID only after all others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ids {
    /// IDs of the programs.
    pub programs: Vec<u32>,
    /// IDs of the maps.
    pub maps: Vec<u32>,
}

impl Ids {
    /// Returns the IDs that the kernel still has. It frees unreferenced objects with a delay, so call this again if some are
    /// left.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is missing.
    pub fn alive(&self) -> io::Result<Self> {
        Ok(Self {
            programs: openable(&self.programs, program_by_id)?,
            maps: openable(&self.maps, map_by_id)?,
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty()
    }

    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let (programs, maps) = text.trim().split_once(';')?;
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

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// Returns those of `ids` that `open` can open; each descriptor is closed at once.
fn openable(ids: &[u32], open: fn(u32) -> io::Result<OwnedFd>) -> io::Result<Vec<u32>> {
    let mut openable_ids = Vec::new();
    for &id in ids {
        match open(id) {
            Ok(_) => openable_ids.push(id),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(openable_ids)
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
