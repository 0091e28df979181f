//! Network interfaces as inputs (`xdp://IF:PORT`): opened on the best receive path that works, and reopened when they change.
//!
//! Receive paths from best to worst: detection in the kernel if configured, AF_XDP zero-copy, native XDP, generic XDP, packet
//! socket, UDP socket. While the interface does not exist, UDP sockets on all interfaces stand in for it.

use settings::{listen::Listen, values::as_nanoseconds};
use std::sync::Arc;

use nic::{
    device,
    receive::{self, Counters, State, Watch},
    udp::{Buffered, Burst, Receiver},
};
use xdp::Sizes;

use super::{Check, Input, Open, Opened, RxSource, Setup, gauge::Interface};
use crate::{
    kernel::{
        KernelSync,
        live::{AttachmentSlot, Live, PROGRAM, Reading},
    },
    settings::{CollectSettings, RxPath, XdpMode, XdpSettings, ZeroCopy},
};
use runtime::{control::IntentDetection, current::Current, host, lock::lock};
use terminal::CliError;

/// An `xdp://…` entry of `[collector] listen`.
pub(super) struct Device {
    active_config: Arc<Current<CollectSettings>>,
    /// The settings at the last opening; a reload may have changed the thresholds since then.
    settings: Arc<CollectSettings>,
    listen: String,
    interface: String,
    ports: Vec<u16>,
    listener: u16,
    /// Facts about the interface at the last opening.
    known: Option<InterfaceFacts>,
    /// The input uses the best receive path that the settings allow.
    best: bool,
}

/// Facts that determine which receive paths work. When they change, another attempt may succeed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InterfaceFacts {
    /// The interface index, or `None` if there is no interface with this name.
    index: Option<u32>,
    /// The interface is administratively up.
    up: bool,
    /// IDs of the XDP programs on it.
    programs: Vec<u32>,
}

/// Opens an interface as an input.
///
/// # Errors
/// No acceptable receive path works; the message gives the reason and a fix.
pub(super) fn input(
    interface: &str,
    ports: &[u16],
    active_config: &Arc<Current<CollectSettings>>,
    listener: usize,
) -> Result<Input, CliError> {
    let listen = Listen::Xdp {
        interface: interface.to_owned(),
        ports: ports.to_vec(),
    };
    let mut device = Device {
        active_config: Arc::clone(active_config),
        settings: active_config.get(),
        listen: listen.to_string(),
        interface: interface.to_owned(),
        ports: ports.to_vec(),
        // The same conversion as in `Input::new`.
        listener: u16::try_from(listener).unwrap_or(u16::MAX),
        known: None,
        best: false,
    };
    let opened = device.open().map_err(CliError::new)?;
    let input = listen.to_string();
    let rx_path = opened.setup.sentence();
    match opened
        .setup
        .interface
        .as_ref()
        .is_some_and(|interface| interface.tried.is_empty())
    {
        true => tracing::info!(input, rx_path, "the input is open"),
        false => tracing::warn!(
            input,
            rx_path,
            "the input is open, not by the fastest receive path"
        ),
    }
    Ok(Input::new(listener, opened, Some(Box::new(device))))
}

impl Open for Device {
    fn open(&mut self) -> Result<Opened, String> {
        self.settings = self.active_config.get();
        let interface_facts = self.interface_facts();
        let is_there = interface_facts.index.is_some();
        self.known = Some(interface_facts);
        if !is_there {
            return self.open_without_interface();
        }
        let mut tried = Vec::new();
        if self.settings.collector.xdp.mode == XdpMode::Kernel {
            match self.open_kernel() {
                Ok(opened) => return Ok(opened),
                Err(reason) => tried.push(("kernel", reason)),
            }
        }
        let opened = receive::open(&self.interface, &self.options()).map_err(|none| self.remedy(&none))?;
        for warning in &opened.warnings {
            tracing::warn!(input = self.listen, warning, "the input works with a limit");
        }
        tried.extend(
            opened
                .tried
                .into_iter()
                .map(|refused| (refused.rx_path.name(), refused.reason)),
        );
        let sources = opened
            .sources
            .into_iter()
            .chain(opened.stack_source)
            .map(RxSource::Source)
            .collect();
        let setup = self.setup(opened.rx_path.name(), opened.queues, tried);
        Ok(Opened {
            sources,
            setup,
            health: Box::new(Health {
                watch: opened.watch,
                counted: Counters::default(),
            }),
        })
    }

    fn could_be_better(&mut self) -> bool {
        let Some(known) = self.known.as_ref().filter(|_| !self.best) else {
            return false;
        };
        let now = self.interface_facts();
        // The health check detects a removed interface; this detects one that appeared, came up, or lost another XDP program.
        let freed = known.programs.iter().any(|id| !now.programs.contains(id));
        now.index.is_some() && (now.index != known.index || now.up && !known.up || freed)
    }
}

impl Device {
    fn interface_facts(&self) -> InterfaceFacts {
        // Unknown facts count as absent: then nothing seems to change.
        let Ok(Some(facts)) = device::facts(&self.interface) else {
            return InterfaceFacts::default();
        };
        let programs = facts
            .xdp
            .unwrap_or_default()
            .iter()
            .map(|program| program.id)
            .collect();
        InterfaceFacts {
            index: Some(facts.index),
            up: facts.up,
            programs,
        }
    }

    fn options(&self) -> receive::Options {
        let collector = &self.settings.collector;
        let xdp = &collector.xdp;
        let (best, worst) = rx_paths(xdp);
        receive::Options {
            ports: self.ports.clone(),
            best,
            worst,
            program: Some(xdp::STEER),
            threads: collector.workers,
            xdp: memory(xdp),
            udp: super::udp::options(collector, &self.ports),
            slot_size: usize::try_from(collector.datagram.0).unwrap_or(usize::MAX),
            ..receive::Options::default()
        }
    }

    fn setup(&mut self, kind: &'static str, queues: u32, tried: Vec<(&'static str, String)>) -> Setup {
        self.best = tried.is_empty();
        let interface = Interface {
            name: self.interface.clone(),
            queues,
            tried,
        };
        Setup {
            listen: self.listen.clone(),
            kind,
            interface: Some(interface),
            ..Setup::default()
        }
    }

    /// Opens UDP sockets on all interfaces, for use until this interface appears.
    fn open_without_interface(&mut self) -> Result<Opened, String> {
        let xdp = &self.settings.collector.xdp;
        let missing = format!(
            "there is no interface `{}` here (`ip link` lists those there are)",
            self.interface
        );
        if xdp.lowest != RxPath::Udp || xdp.zero_copy == ZeroCopy::Require {
            return Err(format!(
                "{missing}; make it, name another one, or allow lowest = \"udp\""
            ));
        }
        let collector = &self.settings.collector;
        let options = super::udp::options(collector, &self.ports);
        let slot = usize::try_from(collector.datagram.0).unwrap_or(usize::MAX);
        let mut sources = Vec::new();
        for port in self
            .ports
            .iter()
            // Another input already listens on these ports on all interfaces.
            .filter(|port| !collector.listen.contains(&Listen::UdpAny(**port)))
        {
            let receiver =
                Receiver::bind_any(*port, None, &options).map_err(|error| format!("{missing}; {error}"))?;
            let source = Buffered::new(receiver, Burst::new(collector.burst, slot));
            sources.push(RxSource::Source(Box::new(source)));
        }
        let setup = self.setup(
            "udp",
            0,
            vec![("xdp", format!("{missing}; it is opened when it appears"))],
        );
        Ok(Opened {
            sources,
            setup,
            health: Box::new(super::AlwaysHealthy),
        })
    }

    /// Opens the interface with the detection program, which passes only significant changes to user space.
    fn open_kernel(&mut self) -> Result<Opened, String> {
        let collector = &self.settings.collector;
        let listen = Listen::Xdp {
            interface: self.interface.clone(),
            ports: self.ports.clone(),
        };
        if collector.is_restricted(&listen) {
            // Reports that the program suppresses would bypass the check.
            return Err("the kernel program cannot restrict senders ([[collector.allow]])".to_owned());
        }
        let ports: Vec<(u16, u16)> = self.ports.iter().map(|port| (*port, self.listener)).collect();
        let (default, profiles) = self.settings.resolve_profiles();
        let detection = self.settings.detection(&IntentDetection::default(), 0)?;
        let reading = Reading {
            ports: &ports,
            default: &default,
            profiles: &profiles,
            detection: &detection,
        };
        let live = Live::load(self.sizes(), &reading).map_err(|error| error.to_string())?;
        let filter = receive::filter(&self.interface, live.object(), PROGRAM, &self.options())
            .map_err(|error| error.to_string())?;
        for warning in &filter.warnings {
            tracing::warn!(input = self.listen, warning, "the input works with a limit");
        }
        let attachment = live.attachment();
        *lock(&attachment) = Some(filter.attached);
        let timeout = as_nanoseconds(collector.flow_timeout);
        let sync = RxSource::Kernel(Box::new(KernelSync::new(live, timeout)));
        let tried = filter
            .tried
            .into_iter()
            .map(|refused| (refused.rx_path.name(), refused.reason))
            .collect();
        let kind = if filter.rx_path == receive::RxPath::Native {
            "kernel-native"
        } else {
            "kernel-generic"
        };
        let setup = self.setup(kind, filter.queues, tried);
        let health = Box::new(KernelHealth {
            watch: filter.watch,
            attachment,
            counted: Counters::default(),
        });
        let sources = std::iter::once(sync)
            .chain(filter.stack_source.map(RxSource::Source))
            .collect();
        Ok(Opened {
            sources,
            setup,
            health,
        })
    }

    /// Returns the table sizes of the kernel program: a quarter more flows than the collector, which then evicts first.
    fn sizes(&self) -> Sizes {
        let collector = &self.settings.collector;
        Sizes {
            flows: collector
                .xdp
                .kernel_flows
                .unwrap_or_else(|| entries(collector.max_flows / 4 * 5)),
            queues: entries(collector.max_queues),
            links: entries(collector.max_links),
            streams: entries(collector.max_sources),
            // 1 GiB if the setting exceeds 32 bits.
            ring: u32::try_from(collector.xdp.ring.0).unwrap_or(1 << 30),
            seed: host::seed() as u32,
        }
    }

    fn remedy(&self, none: &receive::NoRxPath) -> String {
        format!("{none}; `hopwise doctor {}` suggests fixes", self.interface)
    }
}

/// Converts a configured count to the number of entries of a kernel table.
fn entries(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX / 64)
}

/// Returns the options of the memory for AF_XDP frames.
pub fn memory(xdp: &XdpSettings) -> nic::xdp::Options {
    nic::xdp::Options {
        frames_per_queue: xdp.frames,
        huge_pages: xdp.huge_pages,
        ..nic::xdp::Options::default()
    }
}

/// Returns the best and the worst receive path that these settings allow.
pub fn rx_paths(xdp: &XdpSettings) -> (receive::RxPath, receive::RxPath) {
    let lowest = match xdp.lowest {
        RxPath::ZeroCopy => receive::RxPath::ZeroCopy,
        RxPath::Native => receive::RxPath::Native,
        RxPath::Generic => receive::RxPath::Generic,
        RxPath::Packet => receive::RxPath::Packet,
        RxPath::Udp => receive::RxPath::Udp,
    };
    match xdp.zero_copy {
        ZeroCopy::Auto => (receive::RxPath::ZeroCopy, lowest),
        ZeroCopy::Never => (receive::RxPath::Native, lowest),
        ZeroCopy::Require => (receive::RxPath::ZeroCopy, receive::RxPath::ZeroCopy),
    }
}

/// Health check with detection in the kernel: the program is still on its interface. A changed number of queues is tolerated.
struct KernelHealth {
    watch: Watch,
    attachment: AttachmentSlot,
    counted: Counters,
}

impl Check for KernelHealth {
    fn check(&mut self) -> Result<(), String> {
        if self.watch.check().is_ok_and(|state| state == State::Gone) {
            return Err("the interface was removed".to_owned());
        }
        let replaced = lock(&self.attachment)
            .as_ref()
            .map(nic::bpf::Attachment::replaced)
            .transpose();
        // `Some(0)`: no program is attached; `Some(id)`: another one is.
        match replaced {
            Ok(Some(Some(0))) => Err("the XDP program was detached from the interface".to_owned()),
            Ok(Some(Some(id))) => Err(format!(
                "another program has replaced the XDP program on the interface (`bpftool prog show id {id}` names it)"
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot query the state of the interface: {error}")),
        }
    }

    fn counters(&mut self) -> Counters {
        count(&mut self.watch, &mut self.counted)
    }
}

/// Health check of an interface's receive queues and XDP program.
struct Health {
    watch: Watch,
    counted: Counters,
}

/// Returns the counters of a watch, or the last known ones while they cannot be read.
fn count(watch: &mut Watch, counted: &mut Counters) -> Counters {
    *counted = watch.counters().unwrap_or(*counted);
    *counted
}

impl Check for Health {
    fn check(&mut self) -> Result<(), String> {
        match self.watch.check() {
            Ok(State::Good) => Ok(()),
            Ok(State::Gone) => Err("the interface was removed".to_owned()),
            Ok(State::QueuesChanged { before, now }) => {
                Err(format!("the interface has {now} receive queues and had {before}"))
            }
            Ok(State::Replaced { id: 0 }) => {
                Err("the XDP program was detached from the interface".to_owned())
            }
            Ok(State::Replaced { id }) => Err(format!(
                "another program has replaced the XDP program on the interface (`bpftool prog show id {id}` names it)"
            )),
            Err(error) => Err(format!("cannot query the state of the interface: {error}")),
        }
    }

    fn counters(&mut self) -> Counters {
        count(&mut self.watch, &mut self.counted)
    }
}
