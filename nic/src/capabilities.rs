//! Linux capabilities of this process: reads them from /proc, and drops those that are no longer needed.
//!
//! Linux keeps capabilities per thread, and a new thread inherits them from the thread that created it. So a process drops them
//! *before* it has other threads: after opening sockets and loading programs, and before starting the first worker. [`drop_to`]
//! refuses to run later, because it would affect one thread only. If one thread must keep more than the others, the first
//! thread creates it, then calls [`drop_thread_to`], and then creates the others; threads that the privileged one creates call
//! [`drop_thread_to`] at their start.

use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::{sys, time};

/// Time that other threads have to exit, ms: the kernel still counts a joined thread for a short time.
const THREAD_EXIT_MS: u32 = 2000;
/// ABI version `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
const VERSION_3: u32 = 0x2008_0522;

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cap(u8);

impl Cap {
    /// Reading and writing files regardless of their permissions.
    pub const DAC_OVERRIDE: Self = Self(1);
    /// Removing capabilities from the bounding set.
    pub const SETPCAP: Self = Self(8);
    /// Listening on ports below 1024.
    pub const NET_BIND_SERVICE: Self = Self(10);
    /// Attaching programs to interfaces; socket buffers beyond `net.core.rmem_max`.
    pub const NET_ADMIN: Self = Self(12);
    /// Sockets that see whole frames: AF_XDP, AF_PACKET.
    pub const NET_RAW: Self = Self(13);
    /// Locking memory beyond the limit; huge pages.
    pub const IPC_LOCK: Self = Self(14);
    /// Includes everything that CAP_BPF allows, and much more.
    pub const SYS_ADMIN: Self = Self(21);
    /// Operations that the verifier denies to unprivileged programs: computing an address from the contents of a frame.
    pub const PERFMON: Self = Self(38);
    /// Loading programs and creating maps.
    pub const BPF: Self = Self(39);

    /// All possible capabilities: as many as a mask has bits.
    const ALL: std::ops::Range<u8> = 0..64;

    /// Returns the name, such as `"cap_net_admin"`; for a capability newer than this program its number, such as `"cap_57"`.
    pub fn name(self) -> String {
        match NAMES.get(usize::from(self.0)) {
            Some(name) => format!("cap_{name}"),
            None => format!("cap_{}", self.0),
        }
    }
}

/// Names from linux/capability.h, by capability number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// A set of Linux capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CapSet(u64);

impl CapSet {
    /// Returns the set of these capabilities.
    pub fn of(caps: &[Cap]) -> Self {
        Self(caps.iter().fold(0, |bits, cap| bits | 1 << cap.0))
    }

    /// Returns whether the capability is in the set.
    pub fn has(self, cap: Cap) -> bool {
        self.0 >> cap.0 & 1 == 1
    }

    /// Returns the capabilities that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the capabilities of the set, by number.
    pub fn iter(self) -> impl Iterator<Item = Cap> {
        Cap::ALL.map(Cap).filter(move |cap| self.has(*cap))
    }
}

impl fmt::Display for CapSet {
    /// Writes `cap_net_admin,cap_bpf`, or `none` for an empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<String> = self.iter().map(Cap::name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for CapSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The capabilities of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Capabilities {
    /// Capabilities that are in effect.
    pub effective: CapSet,
    /// Capabilities that the thread can make effective.
    pub permitted: CapSet,
    /// Capabilities that programs it starts may keep, if their files permit it.
    pub inheritable: CapSet,
    /// Capabilities that programs it starts keep.
    pub ambient: CapSet,
    /// Upper bound of the capabilities of programs it starts.
    pub bounding: CapSet,
    /// True if programs that it starts cannot gain capabilities (`no_new_privs`).
    pub no_new_privileges: bool,
    /// True if the process runs as root.
    pub root: bool,
}

impl Capabilities {
    /// Returns whether the process may load BPF programs. CAP_SYS_ADMIN includes CAP_BPF.
    pub fn may_load(&self) -> bool {
        self.effective.has(Cap::BPF) || self.effective.has(Cap::SYS_ADMIN)
    }

    /// Returns whether the verifier allows pointer arithmetic in programs of this process. CAP_SYS_ADMIN includes CAP_PERFMON.
    pub fn may_compute(&self) -> bool {
        self.effective.has(Cap::PERFMON) || self.effective.has(Cap::SYS_ADMIN)
    }

    /// Parses a `status` file of /proc. Returns `None` if a field is missing; every kernel since 4.10 has all of them.
    pub fn parse(status: &str) -> Option<Self> {
        Some(Self {
            effective: set_in(status, "CapEff")?,
            permitted: set_in(status, "CapPrm")?,
            inheritable: set_in(status, "CapInh")?,
            ambient: set_in(status, "CapAmb")?,
            bounding: set_in(status, "CapBnd")?,
            no_new_privileges: words_of(status, "NoNewPrivs")?.next()? == "1",
            // Real, effective, saved and file system user; the effective one counts.
            root: words_of(status, "Uid")?.nth(1)? == "0",
        })
    }
}

/// Returns the words of a field of a `status` file.
fn words_of<'s>(status: &'s str, field: &str) -> Option<std::str::SplitAsciiWhitespace<'s>> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.split_ascii_whitespace())
}

fn set_in(status: &str, field: &str) -> Option<CapSet> {
    let bits = words_of(status, field)?.next()?;
    u64::from_str_radix(bits, 16).ok().map(CapSet)
}

/// Returns the capabilities of the calling thread.
///
/// # Errors
/// /proc is not mounted, or not readable.
pub fn current() -> Result<Capabilities, Error> {
    const STATUS: &str = "/proc/thread-self/status";
    let text = fs::read_to_string(STATUS).map_err(Error::failed("open", STATUS))?;
    Capabilities::parse(&text).ok_or_else(|| {
        let source = io::Error::other("there are no capabilities in it");
        Error::new("read", STATUS, source)
    })
}

/// Permanently drops all capabilities of this process except those in `keep`; see [`drop_thread_to`]. Returns the remaining
/// capabilities, read back from the kernel.
///
/// # Errors
/// This process already has more than one thread (see above), or the system refused. Use [`current`] to read the capabilities
/// then.
pub fn drop_to(keep: CapSet) -> Result<Capabilities, Error> {
    let mut threads = threads()?;
    for _ in 0..THREAD_EXIT_MS {
        if threads == 1 {
            break;
        }
        time::sleep(Duration::from_millis(1));
        threads = self::threads()?;
    }
    if threads != 1 {
        let late = format!("capabilities are per thread, and there are {threads} threads already");
        return Err(Error::new("capset", "", io::Error::other(late)));
    }
    drop_thread_to(keep)
}

/// Drops all capabilities of the calling thread, and of threads that it creates later, except those in `keep`. They are removed
/// from the permitted, inheritable and ambient sets, and from the bounding set if CAP_SETPCAP allows it; `no_new_privs` is set,
/// so that programs it starts cannot gain any. Returns the remaining capabilities, read back from the kernel.
///
/// # Errors
/// The system refused. Use [`current`] to read the capabilities then.
pub fn drop_thread_to(keep: CapSet) -> Result<Capabilities, Error> {
    let now = current()?;
    let retained = now.permitted.and(keep);
    if now.effective.has(Cap::SETPCAP) {
        for cap in now.bounding.iter().filter(|cap| !retained.has(*cap)) {
            control("prctl PR_CAPBSET_DROP", libc::PR_CAPBSET_DROP, u64::from(cap.0))?;
        }
    }
    // Clearing the ambient set here and setting `no_new_privs` below keeps programs that this process starts from having
    // capabilities that the process itself has dropped.
    control(
        "prctl PR_CAP_AMBIENT",
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as u64,
    )?;
    set(retained)?;
    control("prctl PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, 1)?;
    current()
}

/// Returns the number of threads of this process.
fn threads() -> Result<usize, Error> {
    const TASKS: &str = "/proc/self/task";
    let tasks = fs::read_dir(TASKS).map_err(Error::failed("open", TASKS))?;
    Ok(tasks.count())
}

fn control(call: &'static str, option: i32, value: u64) -> Result<(), Error> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer; all five arguments are given, as longs.
    let result = unsafe { libc::prctl(option, value as libc::c_ulong, NONE, NONE, NONE) };
    sys::check(result).map(drop).map_err(Error::failed(call, ""))
}

/// `struct __user_cap_header_struct` of linux/capability.h. Two [`Word`]s of 32 capabilities
/// each are passed as a separate argument.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const _: () = assert!(size_of::<Header>() == 8 && size_of::<Word>() == 12);

/// Sets the effective and permitted sets of the calling thread to `capabilities`, and clears the inheritable set.
fn set(capabilities: CapSet) -> Result<(), Error> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let words = [capabilities.0, capabilities.0 >> 32].map(|bits| Word {
        effective: bits as u32,
        permitted: bits as u32,
        inheritable: 0,
    });
    // SAFETY: the kernel reads a header of version 3 and the two words that it announces; both live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    sys::check(result)
        .map(drop)
        .map_err(Error::failed("capset", capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\thopwise\nUid:\t1000\t65534\t1000\t1000\nCapInh:\t0000000000000000\n\
        CapPrm:\t0000008000007000\nCapEff:\t0000008000003000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000001000\nNoNewPrivs:\t1\n";

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let expected = Capabilities {
            effective: CapSet::of(&[Cap::BPF, Cap::NET_ADMIN, Cap::NET_RAW]),
            permitted: CapSet::of(&[Cap::BPF, Cap::NET_ADMIN, Cap::NET_RAW, Cap::IPC_LOCK]),
            inheritable: CapSet::default(),
            ambient: CapSet::of(&[Cap::NET_ADMIN]),
            bounding: CapSet((1 << 41) - 1),
            no_new_privileges: true,
            root: false,
        };
        assert_eq!(Capabilities::parse(STATUS), Some(expected));
        let root = STATUS.replace("1000\t65534", "1000\t0");
        assert_eq!(
            Capabilities::parse(&root),
            Some(Capabilities {
                root: true,
                ..expected
            })
        );
        for line in STATUS.lines().filter(|line| !line.starts_with("Name")) {
            assert_eq!(Capabilities::parse(&STATUS.replace(line, "")), None, "{line}");
        }
        assert_eq!(
            Capabilities::parse(&STATUS.replace("CapEff:\t", "CapEff:\tx")),
            None
        );
    }

    #[test]
    fn sets_are_named_as_setcap_names_them() {
        let set = CapSet::of(&[Cap::BPF, Cap::NET_ADMIN, Cap(57)]);
        assert_eq!(set.to_string(), "cap_net_admin,cap_bpf,cap_57");
        assert_eq!(CapSet::default().to_string(), "none");
        assert_eq!(
            set.and(CapSet::of(&[Cap::BPF, Cap::NET_RAW])),
            CapSet::of(&[Cap::BPF])
        );
        assert_eq!(Cap(40).name(), "cap_checkpoint_restore");
    }

    #[test]
    fn cap_sys_admin_stands_for_cap_bpf() {
        let with = |caps: &[Cap]| Capabilities {
            effective: CapSet::of(caps),
            ..Capabilities::default()
        };
        assert!(with(&[Cap::BPF]).may_load() && with(&[Cap::SYS_ADMIN]).may_load());
        assert!(!with(&[Cap::NET_ADMIN]).may_load());
        assert!(with(&[Cap::PERFMON]).may_compute() && with(&[Cap::SYS_ADMIN]).may_compute());
        assert!(!with(&[Cap::BPF]).may_compute());
    }

    #[test]
    fn kernel_output_is_parsed() {
        let capabilities = current().unwrap();
        assert_eq!(
            capabilities.effective.and(capabilities.permitted),
            capabilities.effective
        );
    }

    #[test]
    fn with_other_threads_nothing_is_given_up() {
        // The test runner's main thread waits for this one, so there are at least two.
        let before = current().unwrap();
        let error = drop_to(CapSet::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("capset: capabilities are per thread, and there are "),
            "{error}"
        );
        assert_eq!(current().unwrap(), before);
    }
}
