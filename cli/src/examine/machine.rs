//! Checks of the machine: socket buffers, backlog, kernel version, AF_XDP, capabilities, locked memory, huge pages and BPF.

use nic::{capabilities::Cap, device::Machine, receive};

use super::{Check, Examined, INITIAL_NAMESPACE_ONLY, Requirements, Verdict, rx_path};
use terminal::units;

/// Name of the check that every socket repeats when it opens, so the log need not have it twice.
pub(super) const RECEIVE_BUFFER: &str = "receive_buffer";
/// Command that grants the capabilities to read interfaces by AF_XDP.
const SETCAP: &str = "setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)";
/// Command that grants the capabilities for AF_XDP and for detection in the kernel.
const SETCAP_KERNEL: &str =
    "setcap cap_bpf,cap_perfmon,cap_net_admin,cap_net_raw,cap_ipc_lock+ep $(command -v hopwise)";

/// Machine's requirements for AF_XDP.
struct XdpRequirements<'a> {
    machine: &'a Machine,
    /// Memory for the frames of all interfaces, bytes.
    frames: u64,
    /// True if the configuration has `mode = "kernel"`: detection in the kernel.
    kernel_mode: bool,
    /// Verdict on an unmet requirement: blocking if the user requested an interface.
    verdict: Verdict,
}

/// Returns all checks; the checks for AF_XDP only if there is an interface to read.
pub(super) fn checks(requirements: &Requirements, machine: &Machine, inputs: &[Examined]) -> Vec<Check> {
    let interfaces: Vec<&Examined> = inputs
        .iter()
        .filter(|examined| examined.input.interface.is_some())
        .collect();
    let mut checks = vec![
        receive_buffer(requirements.receive_buffer, machine),
        backlog(machine),
    ];
    checks.push(transparent_huge_pages(machine));
    if interfaces.is_empty() {
        return checks;
    }
    let frames = interfaces
        .iter()
        .map(|examined| frame_memory(examined, requirements))
        .sum();
    let requested = interfaces.iter().any(|examined| examined.input.requested);
    let verdict = if requested {
        Verdict::Blocking
    } else {
        Verdict::Suboptimal
    };
    let xdp = XdpRequirements {
        machine,
        frames,
        kernel_mode: requirements.kernel_mode,
        verdict,
    };
    checks.extend([xdp.kernel(), xdp.sockets(), xdp.capabilities(), xdp.memlock()]);
    checks.extend(requirements.kernel_mode.then(|| xdp.kernel_detection()));
    if requirements.memory.huge_pages {
        checks.push(xdp.huge_pages());
    }
    checks.extend([xdp.jit(), xdp.btf()]);
    checks
}

/// Returns the memory that AF_XDP needs for the frames of an interface, bytes.
fn frame_memory(examined: &Examined, requirements: &Requirements) -> u64 {
    let facts = examined.facts.as_ref();
    let queues = facts
        .and_then(|facts| facts.queues)
        .map_or(1, |queues| queues.receiving());
    receive::memory_needed(facts.and_then(|facts| facts.mtu), queues, &requirements.memory)
}

fn receive_buffer(required: u64, machine: &Machine) -> Check {
    let name = RECEIVE_BUFFER;
    let why =
        "Datagrams wait in the socket's buffer while hopwise is busy; the kernel drops them when it is full.";
    if machine
        .capabilities
        .is_some_and(|capabilities| capabilities.effective.has(Cap::NET_ADMIN))
    {
        return Check::ok(name, format!("{}, by CAP_NET_ADMIN", size(required)), why);
    }
    let Some(limit) = machine.rmem_max else {
        return Check::unknown(name, INITIAL_NAMESPACE_ONLY);
    };
    if limit >= required {
        return Check::ok(name, size(required), why);
    }
    Check::ok(
        name,
        format!("{} instead of {}", size(limit), size(required)),
        why,
    )
    .with(Verdict::Suboptimal)
    .fixed_by(format!("sysctl -w net.core.rmem_max={required}"))
}

fn backlog(machine: &Machine) -> Check {
    let name = "backlog";
    let why = "Frames of drivers without NAPI queues of their own (veth, loopback, RPS) wait here; the kernel drops them when it is full.";
    let (Some(drops), Some(length)) = (machine.backlog_drops, machine.backlog) else {
        return Check::unknown(name, INITIAL_NAMESPACE_ONLY);
    };
    let room = format!("room for {}", units::counted(length, "frame"));
    if drops == 0 {
        return Check::ok(name, format!("{room}, none lost"), why);
    }
    Check::ok(
        name,
        format!(
            "{room}, {} lost since the machine started",
            units::counted(drops, "frame")
        ),
        why,
    )
    .with(Verdict::Suboptimal)
    .fixed_by(format!(
        "sysctl -w net.core.netdev_max_backlog={}",
        (length * 4).max(10_000)
    ))
}

fn transparent_huge_pages(machine: &Machine) -> Check {
    let name = "transparent_huge_pages";
    let why = "They reduce TLB misses in the flow tables.";
    match machine.transparent_huge_pages.as_deref() {
        None => Check::unknown(name, "/sys is not mounted, or this kernel has none."),
        Some("never") => Check::ok(name, "never", why)
            .with(Verdict::Suboptimal)
            .fixed_by("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(other) => Check::ok(name, other, why),
    }
}

impl XdpRequirements<'_> {
    fn kernel(&self) -> Check {
        let name = "kernel";
        let why = "hopwise needs AF_XDP of Linux 5.4; 5.9 and later remove the XDP program with its process.";
        let Some(version) = self.machine.kernel_version() else {
            return Check::unknown(name, why);
        };
        let check = Check::ok(name, self.machine.kernel.clone().unwrap_or_default(), why);
        match version {
            (5, 9..) | (6.., _) => check,
            (5, 4..) => check.with(Verdict::Suboptimal),
            _ => check.with(self.verdict),
        }
    }

    fn sockets(&self) -> Check {
        let name = "xdp_sockets";
        let why = "Kernels built without CONFIG_XDP_SOCKETS have none; reports are then received by a slower receive path.";
        match self.machine.xdp_sockets {
            Some(true) => Check::ok(name, "there", why),
            Some(false) => Check::ok(name, "not in this kernel", why).with(self.verdict),
            None => Check::unknown(name, "Without CAP_NET_RAW this cannot be read."),
        }
    }

    fn capabilities(&self) -> Check {
        let name = "capabilities";
        let why = "Loading and attaching an XDP program and opening its sockets requires CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW. \
             These are the capabilities of this process; the packaged service has its own.";
        match rx_path::missing_capabilities(self.machine) {
            None => Check::unknown(name, why),
            Some(missing) if missing.is_empty() => Check::ok(name, "all that are needed", why),
            Some(missing) => Check::ok(name, format!("{} missing", missing.join(", ")), why)
                .with(self.verdict)
                .fixed_by(if self.kernel_mode { SETCAP_KERNEL } else { SETCAP }),
        }
    }

    /// Checks the capability that `mode = "kernel"` needs: only the detection program uses variable packet offsets.
    fn kernel_detection(&self) -> Check {
        let name = "kernel_mode";
        let why = "Without CAP_PERFMON the verifier refuses programs with variable packet offsets, and hopwise falls back to \
             mode = \"user\".";
        match self.machine.capabilities {
            None => Check::unknown(name, why),
            Some(capabilities) if capabilities.may_compute() => Check::ok(name, "CAP_PERFMON is there", why),
            Some(_) => Check::ok(name, "CAP_PERFMON missing", why)
                .with(self.verdict)
                .fixed_by(SETCAP_KERNEL),
        }
    }

    fn memlock(&self) -> Check {
        let name = "memlock";
        let why = "The memory for received frames is locked; more than the limit requires CAP_IPC_LOCK. The packaged service has both.";
        if self
            .machine
            .capabilities
            .is_some_and(|capabilities| capabilities.effective.has(Cap::IPC_LOCK))
        {
            return Check::ok(name, "not limited, by CAP_IPC_LOCK", why);
        }
        let Some(limits) = self.machine.memlock else {
            return Check::unknown(name, why);
        };
        let required = size(self.frames);
        match limits.soft {
            u64::MAX => Check::ok(name, "not limited", why),
            soft if soft >= self.frames => Check::ok(name, format!("{}, {required} needed", size(soft)), why),
            soft => {
                let fix = if limits.hard >= self.frames {
                    format!("ulimit -l {}", self.frames.div_ceil(1024))
                } else {
                    SETCAP.to_owned()
                };
                let found = format!("{}, {required} needed", size(soft));
                Check::ok(name, found, why).with(self.verdict).fixed_by(fix)
            }
        }
    }

    fn huge_pages(&self) -> Check {
        let name = "huge_pages";
        let why =
            "Huge pages reduce TLB misses when frames are read; without them hopwise uses ordinary pages.";
        let Some(pages) = self.machine.huge_pages.filter(|pages| pages.size > 0) else {
            return Check::unknown(name, why);
        };
        let required = self.frames.div_ceil(pages.size);
        let check = Check::ok(
            name,
            format!("{} of {} free, {required} wanted", pages.free, pages.total),
            why,
        );
        if pages.free >= required {
            return check;
        }
        let total = pages.total + required - pages.free;
        check
            .with(Verdict::Suboptimal)
            .fixed_by(format!("sysctl -w vm.nr_hugepages={total}"))
    }

    fn jit(&self) -> Check {
        let name = "bpf_jit";
        let why = "Interpreted BPF programs are several times slower than compiled ones.";
        match self.machine.bpf_jit {
            None => Check::unknown(name, INITIAL_NAMESPACE_ONLY),
            Some(0) => Check::ok(name, "off", why)
                .with(Verdict::Suboptimal)
                .fixed_by("sysctl -w net.core.bpf_jit_enable=1"),
            Some(_) => Check::ok(name, "on", why),
        }
    }

    fn btf(&self) -> Check {
        let name = "btf";
        match self.machine.btf {
            None => Check::unknown(name, "/sys is not mounted."),
            Some(true) => Check::ok(name, "there", "The kernel describes its own types to programs."),
            Some(false) => {
                let why = "The kernel has no type information (BTF); hopwise's programs do not need it.";
                Check::ok(name, "not available, not needed", why)
            }
        }
    }
}

/// Formats a size in the largest binary unit that divides it, as settings do.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{} B", units::count(b)),
    }
}
