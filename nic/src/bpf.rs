//! BPF programs and maps: loads them from an embedded object, attaches programs to interfaces, accesses maps, and runs
//! programs on test input.
//!
//! The `aya` crate loads objects (maps, relocations, BTF). Maps are accessed by whole keys and values as bytes, so this module
//! does not depend on their contents.

mod ids;
mod map;
mod program;

use std::collections::BTreeMap;

use aya::{Ebpf, EbpfLoader};

pub use ids::Ids;
pub use map::{Map, Mapped, Ring};
pub use program::{Attachment, Mode, Run};

use crate::error::Error;

/// Changes to an object before it is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions<'a> {
    /// (Map, maximum number of entries), which replace the object's own sizes.
    pub max_entries: Vec<(&'a str, u32)>,
    /// (Global variable, value), which the verifier then treats as constants.
    pub constants: Vec<(&'a str, u32)>,
}

/// A loaded object: its programs and maps live as long as it, one of its [`Attachment`]s or one of its [`Map`]s. Nothing is
/// pinned, so the kernel frees all of it when the process ends for any reason.
#[derive(Debug)]
pub struct Object {
    bpf: Ebpf,
    maps: BTreeMap<String, Map>,
}

impl Object {
    /// Loads the maps of an object and verifies and loads its XDP programs.
    ///
    /// # Errors
    /// The object is invalid, the kernel lacks a feature, or permission is missing (CAP_BPF and CAP_NET_ADMIN); an error of
    /// the verifier includes the end of its log.
    pub fn load(bytes: &[u8], options: &LoadOptions<'_>) -> Result<Self, Error> {
        let mut loader = EbpfLoader::new();
        for (map, entries) in &options.max_entries {
            loader.map_max_entries(map, *entries);
        }
        for (name, value) in &options.constants {
            loader.override_global(name, value, true);
        }
        let mut bpf = loader
            .load(bytes)
            .map_err(|error| program::load_error(program::error("load the BPF object", "", error)))?;
        let mut maps = BTreeMap::new();
        for (name, map) in bpf.maps() {
            maps.insert(name.to_owned(), Map::of(name, map)?);
        }
        for (name, program) in bpf.programs_mut() {
            program::load(name, program)?;
        }
        Ok(Self { bpf, maps })
    }

    /// Returns the names of its XDP programs, in order.
    pub fn programs(&self) -> Vec<String> {
        program::names(&self.bpf)
    }

    /// Iterates over all maps of the object.
    pub fn maps(&self) -> impl Iterator<Item = &Map> {
        self.maps.values()
    }

    /// Returns a map by its name in the object.
    ///
    /// # Errors
    /// The object has none of this name.
    pub fn map(&self, name: &str) -> Result<&Map, Error> {
        self.maps.get(name).ok_or_else(|| program::missing("map", name))
    }

    /// Returns the reader of the ring buffer of this name. A ring has one reader, so a second call fails.
    ///
    /// # Errors
    /// There is no such ring buffer, or it was taken before.
    pub fn ring(&mut self, name: &str) -> Result<Ring, Error> {
        let map = self
            .bpf
            .take_map(name)
            .ok_or_else(|| program::missing("ring buffer", name))?;
        Ring::new(map)
    }

    /// Puts a program of another object at index 0 of a program array.
    ///
    /// # Errors
    /// There is no such map or program, or the program cannot be called from the programs that use the map, because only one of
    /// them supports frames in several buffers.
    pub fn set_program(&self, map: &str, other: &Self, program: &str) -> Result<(), Error> {
        let fd = program::descriptor(&other.bpf, program)?;
        self.map(map)?.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes())
    }

    /// Returns the kernel's ID of a program, as `bpftool prog` shows it.
    ///
    /// # Errors
    /// The object has none of this name.
    pub fn program_id(&self, program: &str) -> Result<u32, Error> {
        program::id(&self.bpf, program)
    }

    /// Returns the kernel's IDs of all programs and maps.
    ///
    /// # Errors
    /// The system call failed.
    pub fn ids(&self) -> Result<Ids, Error> {
        let names = self.bpf.programs().map(|(name, _)| name);
        let programs = names
            .map(|name| self.program_id(name))
            .collect::<Result<_, _>>()?;
        Ok(Ids {
            programs,
            maps: self.maps.values().map(Map::id).collect(),
        })
    }

    /// Attaches a program to an interface. It stays as long as the [`Attachment`] lives.
    ///
    /// # Errors
    /// The driver or the kernel refused, or another program is attached.
    pub fn attach(&self, program: &str, interface: u32, mode: Mode) -> Result<Attachment, Error> {
        program::attach(&self.bpf, program, interface, mode)
    }

    /// Attaches by netlink, as on kernels before 5.9, to test that path; see [`Attachment`].
    ///
    /// # Errors
    /// The same as for [`Object::attach`].
    #[doc(hidden)]
    pub fn attach_by_netlink(&self, program: &str, interface: u32, mode: Mode) -> Result<Attachment, Error> {
        program::attach_by_netlink(&self.bpf, program, interface, mode)
    }

    /// Runs a program `repeat` times on one frame. Each run sees the changes of the earlier runs.
    ///
    /// # Errors
    /// The kernel refused, for example a frame shorter than an Ethernet header.
    pub fn test_run(&self, program: &str, frame: &[u8], repeat: u32) -> Result<Run, Error> {
        program::test_run(&self.bpf, program, frame, repeat)
    }

    /// Sends `count` copies of a frame through a program, whose verdict forwards or drops each copy, as if they had arrived on
    /// `interface` (of the caller's network namespace).
    ///
    /// # Errors
    /// The kernel refused, for example because it is older than 5.18.
    pub fn run_live(&self, program: &str, frame: &[u8], count: u32, interface: u32) -> Result<(), Error> {
        program::run_live(&self.bpf, program, frame, count, interface)
    }
}
