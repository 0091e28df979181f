//! Facts about the machine (kernel, memory, limits, capabilities), from /proc and /sys.

use std::fs;
use std::path::Path;

use super::probe;
use crate::capabilities::{self, Capabilities};

/// Facts about a machine, and the permissions of this process on it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Machine {
    /// Release of the kernel, such as `"6.1.0-18-amd64"`.
    pub kernel: Option<String>,
    /// Number of processors online.
    pub cpus: Option<u32>,
    /// Largest receive buffer that a socket may request without CAP_NET_ADMIN, bytes.
    pub rmem_max: Option<u64>,
    /// Default receive buffer of a socket, bytes.
    pub rmem_default: Option<u64>,
    /// Maximum backlog per CPU for drivers without a queue of their own, frames.
    pub backlog: Option<u64>,
    /// Frames dropped because this backlog was full, since boot.
    pub backlog_drops: Option<u64>,
    /// Limit of memory that may be locked without CAP_IPC_LOCK.
    pub memlock: Option<Limits>,
    /// The machine's pool of huge pages.
    pub huge_pages: Option<HugePages>,
    /// Setting for transparent huge pages: `"always"`, `"madvise"` or `"never"`.
    pub transparent_huge_pages: Option<String>,
    /// Capabilities of this thread.
    pub capabilities: Option<Capabilities>,
    /// True if the kernel has BTF, in /sys/kernel/btf/vmlinux.
    pub btf: Option<bool>,
    /// BPF JIT compiler: 0 off, 1 on, 2 on with logging.
    pub bpf_jit: Option<u64>,
    /// Setting for loading programs without CAP_BPF: 0 allowed, 1 and 2 not allowed.
    pub unprivileged_bpf_disabled: Option<u64>,
    /// True if the kernel has AF_XDP sockets; unknown without CAP_NET_RAW.
    pub xdp_sockets: Option<bool>,
}

/// A resource limit in bytes; `u64::MAX` means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The soft (effective) limit.
    pub soft: u64,
    /// The maximum that the process may set.
    pub hard: u64,
}

/// Huge pages of the default size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HugePages {
    /// Number of huge pages in the pool.
    pub total: u64,
    /// Huge pages that are neither in use nor reserved.
    pub free: u64,
    /// Size of a huge page, bytes.
    pub size: u64,
}

impl Machine {
    /// Returns the kernel version, (major, minor).
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        version(self.kernel.as_deref()?)
    }
}

/// Returns the facts about this machine, in the network namespace and with the capabilities of the calling thread.
pub fn machine() -> Machine {
    Machine {
        kernel: file("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
        cpus: file("/sys/devices/system/cpu/online").and_then(|text| listed(&text)),
        rmem_max: number("/proc/sys/net/core/rmem_max"),
        rmem_default: number("/proc/sys/net/core/rmem_default"),
        backlog: number("/proc/sys/net/core/netdev_max_backlog"),
        backlog_drops: file("/proc/thread-self/net/softnet_stat").and_then(|text| backlog_drops(&text)),
        memlock: memlock(),
        huge_pages: file("/proc/meminfo").and_then(|text| huge_pages(&text)),
        transparent_huge_pages: file("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| chosen(&text)),
        capabilities: capabilities::current().ok(),
        // Without this directory /sys is not mounted, so the answer is unknown.
        btf: Path::new("/sys/kernel")
            .is_dir()
            .then(|| Path::new("/sys/kernel/btf/vmlinux").exists()),
        bpf_jit: number("/proc/sys/net/core/bpf_jit_enable"),
        unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        xdp_sockets: probe::has_af_xdp(),
    }
}

fn file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: &str) -> Option<u64> {
    file(path)?.trim().parse().ok()
}

/// Reads the version of a kernel release: `"6.1.0-18-amd64"` is (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Returns the number of elements of a list such as `0-3,8`.
fn listed(text: &str) -> Option<u32> {
    text.trim().split(',').try_fold(0, |sum: u32, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let before: u32 = first.parse().ok()?;
        let count = last.parse::<u32>().ok()?.checked_sub(before)?.checked_add(1)?;
        sum.checked_add(count)
    })
}

/// Returns the sum over all CPUs of the second column, which is hexadecimal.
fn backlog_drops(text: &str) -> Option<u64> {
    text.lines().try_fold(0, |sum: u64, line| {
        let drops = line.split_ascii_whitespace().nth(1)?;
        sum.checked_add(u64::from_str_radix(drops, 16).ok()?)
    })
}

fn huge_pages(meminfo: &str) -> Option<HugePages> {
    let reserved = meminfo_value(meminfo, "HugePages_Rsvd")?;
    Some(HugePages {
        total: meminfo_value(meminfo, "HugePages_Total")?,
        free: meminfo_value(meminfo, "HugePages_Free")?.saturating_sub(reserved),
        size: meminfo_value(meminfo, "Hugepagesize")?.checked_mul(1024)?,
    })
}

fn meminfo_value(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the selected word, which is in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

fn memlock() -> Option<Limits> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`, which lives through the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (result == 0).then_some(Limits {
        soft: limit.rlim_cur,
        hard: limit.rlim_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_kinds_have_a_version() {
        let versions = ["6.1.0-18-amd64", "5.14.0-427.el9.x86_64\n", "6.18.44", "7.0-rc1"].map(version);
        assert_eq!(
            versions,
            [Some((6, 1)), Some((5, 14)), Some((6, 18)), Some((7, 0))]
        );
        assert_eq!(["", "6", "x.y", "-6.1"].map(version), [None; 4]);
    }

    #[test]
    fn processors_are_counted_from_their_list() {
        assert_eq!(
            ["0\n", "0-3,8", "0-1,4-7"].map(listed),
            [Some(1), Some(5), Some(6)]
        );
        assert_eq!(["", "3-1", "a", "0-4294967295"].map(listed), [None; 4]);
    }

    #[test]
    fn drops_of_all_processors_are_added() {
        assert_eq!(backlog_drops("00aa 00000010 1\n00bb 00000001 2\n"), Some(17));
        assert_eq!(backlog_drops(""), Some(0));
        assert_eq!(["00aa\n", "1 xyz\n"].map(backlog_drops), [None; 2]);
    }

    #[test]
    fn huge_pages_that_are_promised_are_not_free() {
        let text = "MemFree: 5 kB\nHugePages_Total:      16\nHugePages_Free:        9\nHugePages_Rsvd:        2\n\
            HugePages_Surp:        0\nHugepagesize:       2048 kB\n";
        assert_eq!(
            huge_pages(text),
            Some(HugePages {
                total: 16,
                free: 7,
                size: 2 << 20
            })
        );
        for line in text
            .lines()
            .filter(|line| !line.starts_with("Mem") && !line.contains("Surp"))
        {
            assert_eq!(huge_pages(&text.replace(line, "")), None, "{line}");
        }
    }

    #[test]
    fn the_word_in_brackets_is_effective() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always madvise never"), None);
        assert_eq!(chosen("[always"), None);
    }

    #[test]
    fn this_machine_reports_plausible_values() {
        let machine = machine();
        assert!(
            machine.kernel_version().is_some_and(|version| version >= (4, 0)),
            "{machine:?}"
        );
        assert!(machine.cpus.is_some_and(|cpus| cpus > 0), "{machine:?}");
        assert!(
            machine.memlock.is_some_and(|limits| limits.soft <= limits.hard),
            "{machine:?}"
        );
    }
}
