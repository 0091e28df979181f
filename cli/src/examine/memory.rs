//! Checks of roles that write or offer collector memory other than by a socket: the responder in the kernel (XDP), RDMA
//! devices (libibverbs), and the secret that protects the exchange of connection parameters.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use nic::capabilities::Cap;
use nic::device::{Facts, Machine, RdmaDevice};

use super::{Check, Examined, Input, Verdict, interface, machine::size};
use config::Settings;
use dta::settings::MemoryMode;
use dta_role::{exchange::secret::Secret, memory::geometry, translator::settings::TransportMode};

/// Memory that a translator's RDMA device locks per collector, bytes: two queue pairs with 1,024 slots of 8 KiB for requests
/// in flight, twice because a reconnection opens two more, and 1 MiB for queues.
const LOCKED_PER_COLLECTOR: u64 = 2 * 2 * 1024 * 8192 + (1 << 20);
/// Name of the check of an exchange's secret.
pub(super) const EXCHANGE_SECRET: &str = "exchange_secret";
/// Command that grants the capabilities for the responder.
const SETCAP: &str = "setcap cap_bpf,cap_perfmon,cap_net_admin+ep $(command -v hopwise)";

/// Component that writes memory, or through which peers may write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Writer {
    /// `[collector.memory] mode = "xdp"` on this interface.
    Kernel { interface: String },
    /// RDMA device (`mode = "verbs"`): the section that uses it, its IP address, and the bytes to lock.
    Verbs {
        section: &'static str,
        address: IpAddr,
        bytes: u64,
    },
    /// Exchange of connection parameters. Any peer that knows the secret, or any that reaches it without one, can write the
    /// memory.
    Exchange {
        section: &'static str,
        address: SocketAddr,
        secret_file: Option<PathBuf>,
    },
}

impl Writer {
    /// Returns the writers of a configuration.
    pub(super) fn from_settings(settings: &Settings) -> Vec<Self> {
        let mut writers = Vec::new();
        if let Some(memory) = &settings.collector.memory {
            match (memory.mode, &memory.interface) {
                (MemoryMode::Socket, _) | (MemoryMode::Xdp, None) => {}
                (MemoryMode::Xdp, Some(interface)) => {
                    writers.push(Self::Kernel {
                        interface: interface.clone(),
                    });
                }
                (MemoryMode::Verbs, _) => {
                    let bytes = memory.stores.iter().map(|store| geometry(store).body_len()).sum();
                    let address = memory.listen.ip();
                    writers.push(Self::Verbs {
                        section: "[collector.memory]",
                        address,
                        bytes,
                    });
                }
            }
        }
        let translator = settings.translator.as_ref();
        if let Some(dta) = translator.filter(|dta| dta.mode == TransportMode::Verbs)
            && let Some(address) = dta.source
        {
            let bytes = LOCKED_PER_COLLECTOR * dta.collectors.len() as u64;
            writers.push(Self::Verbs {
                section: "[translator]",
                address,
                bytes,
            });
        }
        writers.extend(Self::exchanges(settings));
        writers
    }

    /// Returns the exchanges of a configuration: the memory's own, and those that the translator connects to.
    fn exchanges(settings: &Settings) -> Vec<Self> {
        let memory = settings.collector.memory.iter().map(|memory| Self::Exchange {
            section: "[collector.memory]",
            address: memory.exchange,
            secret_file: memory.secret_file.clone(),
        });
        let translator = settings.translator.as_ref();
        let translators = translator.into_iter().flat_map(|dta| {
            dta.collectors.iter().filter_map(|collector| {
                let secret_file = dta.secret_file(collector).map(PathBuf::from);
                Some(Self::Exchange {
                    section: "[translator]",
                    address: collector.exchange?,
                    secret_file,
                })
            })
        });
        memory.chain(translators).collect()
    }

    /// Returns the interface that the writer attaches to, if any.
    pub(super) fn interface(&self) -> Option<&str> {
        match self {
            Self::Kernel { interface } => Some(interface),
            Self::Verbs { .. } | Self::Exchange { .. } => None,
        }
    }

    fn title(&self) -> String {
        match self {
            Self::Kernel { interface } => format!("[collector.memory] on {interface}"),
            Self::Verbs { section, address, .. } => format!("{section} by the RDMA device of {address}"),
            Self::Exchange { section, address, .. } => format!("{section} exchange {address}"),
        }
    }
}

/// Facts for the checks: the interface, RDMA devices, and whether libibverbs can be loaded.
#[derive(Clone, Debug)]
pub(super) struct MemoryFacts {
    pub(super) facts: Option<Facts>,
    pub(super) devices: Vec<RdmaDevice>,
    pub(super) library: Result<(), &'static str>,
}

/// Runs the checks of one writer. `program` is the result of loading the responder into the kernel, if that was tried.
pub(super) fn examine(
    writer: &Writer,
    machine: &Machine,
    memory_facts: MemoryFacts,
    program: Option<Check>,
) -> Examined {
    let mut checks = Vec::new();
    match writer {
        Writer::Kernel { interface } => {
            let mut kernel = kernel(machine);
            // Some distributions backport features to older versions, so a successful load overrides the version.
            if program
                .as_ref()
                .is_some_and(|program| program.verdict == Verdict::Ok)
                && kernel.verdict == Verdict::Blocking
            {
                kernel = kernel.with(Verdict::Suboptimal);
            }
            checks.extend([kernel, capabilities(machine)]);
            checks.extend(program);
            match &memory_facts.facts {
                None => checks.push(interface::missing(interface).with_reason(
                    "Until the interface exists, hopwise does not start: mode = \"xdp\" never falls back to a socket by itself.",
                )),
                Some(facts) => checks.extend(interface::program_checks(facts)),
            }
        }
        Writer::Verbs { address, bytes, .. } => {
            checks.extend([
                rdma_library(memory_facts.library),
                rdma_device(*address, &memory_facts.devices),
                locked_memory(*bytes, machine),
            ]);
        }
        Writer::Exchange {
            address, secret_file, ..
        } => checks.push(secret(*address, secret_file.as_ref())),
    }
    let input = Input {
        listen: writer.title(),
        interface: None,
        sockets: Vec::new(),
        restricted: None,
        requested: true,
    };
    Examined {
        input,
        facts: memory_facts.facts,
        expected: None,
        checks,
    }
}

fn kernel(machine: &Machine) -> Check {
    let name = "kernel";
    let why = "The responder uses functions of Linux 5.18; if hopwise drops its privileges, it needs 5.19.";
    let Some(version) = machine.kernel_version() else {
        return Check::unknown(name, why);
    };
    let check = Check::ok(name, machine.kernel.clone().unwrap_or_default(), why);
    match version {
        (5, 19..) | (6.., _) => check,
        (5, 18) => check.with(Verdict::Suboptimal),
        _ => check.with(Verdict::Blocking),
    }
}

fn secret(address: SocketAddr, file: Option<&PathBuf>) -> Check {
    let why = "Without a secret, every host that reaches the exchange can write the collector's memory, or pose as a collector: set secret_file in \
               [collector.memory] and in [translator], or keep it on a loopback address. The exchange and the writes are not encrypted in \
               any case.";
    let Some(file) = file else {
        let found = if address.ip().to_canonical().is_loopback() {
            return Check::ok(EXCHANGE_SECRET, "none, on a loopback address", why);
        } else {
            "none, and other machines may reach it"
        };
        let check = Check::ok(EXCHANGE_SECRET, found, why).with(Verdict::Suboptimal);
        return check.fixed_by("(umask 077; openssl rand -hex 32 > /etc/hopwise/dta-secret)");
    };
    match Secret::read(file) {
        Ok(_) => Check::ok(EXCHANGE_SECRET, format!("in {}", file.display()), why),
        Err(error) => Check::ok(EXCHANGE_SECRET, error.to_string(), why).with(Verdict::Blocking),
    }
}

fn capabilities(machine: &Machine) -> Check {
    let name = "capabilities";
    let why = "Loading the responder and attaching it requires CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. These are the capabilities of this \
         process; the packaged service has no CAP_PERFMON.";
    let Some(capabilities) = machine.capabilities else {
        return Check::unknown(name, why);
    };
    let required = [
        ("CAP_BPF", capabilities.may_load()),
        ("CAP_PERFMON", capabilities.may_compute()),
        ("CAP_NET_ADMIN", capabilities.effective.has(Cap::NET_ADMIN)),
    ];
    let missing: Vec<&str> = required
        .into_iter()
        .filter(|(_, is_present)| !is_present)
        .map(|(name, _)| name)
        .collect();
    if missing.is_empty() {
        return Check::ok(name, "all that are needed", why);
    }
    Check::ok(name, format!("{} missing", missing.join(", ")), why)
        .with(Verdict::Blocking)
        .fixed_by(SETCAP)
}

fn rdma_library(result: Result<(), &'static str>) -> Check {
    let name = "rdma_library";
    let why = "RDMA devices are used by libibverbs, of rdma-core 32 (2020) or newer, and the drivers that belong to it.";
    match result {
        Ok(()) => Check::ok(name, "libibverbs is there", why),
        Err(error) => Check::ok(name, error, why)
            .with(Verdict::Blocking)
            .fixed_by("apt install libibverbs1 ibverbs-providers"),
    }
}

fn rdma_device(address: IpAddr, devices: &[RdmaDevice]) -> Check {
    let name = "rdma_device";
    let why = "The kernel shows the devices that speak RoCEv2, and their addresses, in /sys/class/infiniband; a device has the addresses of its network \
         interface. Soft-RoCE works, too: `rdma link add rxe0 type rxe netdev eth1`.";
    if let Some(device) = devices.iter().find(|device| device.addresses.contains(&address)) {
        return Check::ok(name, format!("{} has {address}", device.name), why);
    }
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let found = match names.as_slice() {
        [] => "there is no RDMA device".to_owned(),
        names => format!("{address} is of none of {}", names.join(", ")),
    };
    Check::ok(name, found, why)
        .with(Verdict::Blocking)
        .fixed_by("rdma link")
}

fn locked_memory(bytes: u64, machine: &Machine) -> Check {
    let name = "memlock";
    let why = "Memory that an RDMA device reads or writes is locked; more than the limit requires CAP_IPC_LOCK. The packaged service has both, \
         but no access to devices: docs/how-to/dta.md, section 6.";
    if machine
        .capabilities
        .is_some_and(|capabilities| capabilities.effective.has(Cap::IPC_LOCK))
    {
        return Check::ok(name, "not limited, by CAP_IPC_LOCK", why);
    }
    let Some(limits) = machine.memlock else {
        return Check::unknown(name, why);
    };
    match limits.soft {
        u64::MAX => Check::ok(name, "not limited", why),
        soft if soft >= bytes => Check::ok(name, format!("{}, {} needed", size(soft), size(bytes)), why),
        soft => Check::ok(name, format!("{}, {} needed", size(soft), size(bytes)), why)
            .with(Verdict::Blocking)
            .fixed_by(format!("ulimit -l {}", bytes.div_ceil(1024))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nic::capabilities::{CapSet, Capabilities};
    use nic::device::Limits;

    use super::*;

    fn machine(kernel: &str, caps: &[Cap]) -> Machine {
        Machine {
            kernel: Some(kernel.to_owned()),
            capabilities: Some(Capabilities {
                effective: CapSet::of(caps),
                ..Capabilities::default()
            }),
            memlock: Some(Limits {
                soft: 8 << 20,
                hard: 8 << 20,
            }),
            ..nic::device::machine()
        }
    }

    /// Formats the name, verdict, finding and command of all checks.
    fn checks(writer: &Writer, machine: &Machine, facts: &MemoryFacts) -> Vec<String> {
        let examined = examine(writer, machine, facts.clone(), None);
        let one = |check: &Check| {
            let fix = check.fix.as_deref().unwrap_or("-");
            format!(
                "{}: {}: {}: {fix}",
                check.name,
                check.verdict.name(),
                check.finding
            )
        };
        examined.checks.iter().map(one).collect()
    }

    const NOTHING: MemoryFacts = MemoryFacts {
        facts: None,
        devices: Vec::new(),
        library: Ok(()),
    };

    #[test]
    fn the_responder_takes_a_kernel_three_capabilities_and_an_interface() {
        let writer = Writer::Kernel {
            interface: "eth1".to_owned(),
        };
        let all = [Cap::BPF, Cap::PERFMON, Cap::NET_ADMIN];
        assert_eq!(
            checks(&writer, &machine("6.1.0-18-amd64", &all), &NOTHING),
            [
                "kernel: ok: 6.1.0-18-amd64: -",
                "capabilities: ok: all that are needed: -",
                "interface: blocking: there is no eth1: ip -br link"
            ]
        );
        let found = checks(&writer, &machine("5.17.3", &[Cap::SYS_ADMIN]), &NOTHING);
        assert_eq!(found[0], "kernel: blocking: 5.17.3: -");
        assert_eq!(
            found[1],
            format!("capabilities: blocking: CAP_NET_ADMIN missing: {SETCAP}")
        );
        assert_eq!(
            checks(&writer, &machine("5.18.0", &[]), &NOTHING)[0],
            "kernel: suboptimal: 5.18.0: -"
        );
    }

    #[test]
    fn an_exchange_reachable_from_other_machines_requires_a_secret() {
        let file = std::env::temp_dir().join(format!("hopwise-doctor-secret-{}", std::process::id()));
        std::fs::write(&file, "short").unwrap();
        let one = |address: &str, secret_file: Option<&PathBuf>| {
            let address = address.parse().unwrap();
            let secret_file = secret_file.cloned();
            let writer = Writer::Exchange {
                section: "[collector.memory]",
                address,
                secret_file,
            };
            let examined = examine(&writer, &machine("6.1.0", &[]), NOTHING, None);
            let [check] = &examined.checks[..] else {
                panic!("{examined:?}")
            };
            format!("{} {}: {}", check.name, check.verdict.name(), check.finding)
        };
        assert_eq!(
            one("127.0.0.1:1", None),
            "exchange_secret ok: none, on a loopback address"
        );
        assert_eq!(
            one("[::1]:1", None),
            "exchange_secret ok: none, on a loopback address"
        );
        let open = "exchange_secret suboptimal: none, and other machines may reach it";
        assert_eq!([one("0.0.0.0:1", None), one("10.0.0.9:1", None)], [open, open]);
        let found = one("10.0.0.9:1", Some(&file));
        assert!(
            found.starts_with("exchange_secret blocking: ") && !found.contains("short"),
            "{found}"
        );
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn verbs_need_the_library_a_device_with_the_address_and_lockable_memory() {
        let address = IpAddr::from([10, 0, 0, 9]);
        let writer = Writer::Verbs {
            section: "[translator]",
            address,
            bytes: 16 << 20,
        };
        let poor = machine("6.1.0", &[]);
        let rich = machine("6.1.0", &[Cap::IPC_LOCK]);
        let none = MemoryFacts {
            library: Err("libibverbs.so.1: cannot open shared object file"),
            ..NOTHING
        };
        assert_eq!(
            checks(&writer, &poor, &none),
            [
                "rdma_library: blocking: libibverbs.so.1: cannot open shared object file: apt install libibverbs1 ibverbs-providers",
                "rdma_device: blocking: there is no RDMA device: rdma link",
                "memlock: blocking: 8 MiB, 16 MiB needed: ulimit -l 16384"
            ]
        );
        let device = |name: &str, address: IpAddr| RdmaDevice {
            name: name.to_owned(),
            addresses: vec![address],
        };
        let other = device("mlx5_0", Ipv4Addr::LOCALHOST.into());
        let found = MemoryFacts {
            devices: vec![other.clone()],
            ..NOTHING
        };
        assert_eq!(
            checks(&writer, &rich, &found)[1],
            "rdma_device: blocking: 10.0.0.9 is of none of mlx5_0: rdma link"
        );
        let found = MemoryFacts {
            devices: vec![other, device("mlx5_1", address)],
            ..NOTHING
        };
        assert_eq!(
            checks(&writer, &rich, &found),
            [
                "rdma_library: ok: libibverbs is there: -",
                "rdma_device: ok: mlx5_1 has 10.0.0.9: -",
                "memlock: ok: not limited, by CAP_IPC_LOCK: -"
            ]
        );
    }
}
