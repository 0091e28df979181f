//! The switch's thread: passes frames from the interfaces to the router and back, sends reports, and runs LLDP, DTA and the
//! exchange with a translator in the same process.

use std::{
    io::Read,
    net::SocketAddr,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dataplane::router::{Router, Stats, Wires, offload};
use manager::device::Election;
use nic::{
    frames::{self, Options, PollFds, ReceivedFrame},
    time,
    udp::Sender,
};

use super::{
    Requests, change,
    checksum_log::ChecksumLog,
    dta::{Destinations, Dta},
    lldp::{self, Lldp},
    managed::{Managed, Prepared, Proposal, Refused},
};
use crate::settings::{
    self as switch, PortSettings, SwitchSettings, WatchSettings,
    dta::DtaSettings,
    filter::{self, FilterSettings},
};
use runtime::intercept::{self, SwitchEnd};
use terminal::CliError;

/// Maximum number of frames received from one port before the next port's turn.
const BURST: usize = 64;
/// Departures due within this time, ns, are awaited by spinning: sleeping and waking up take about as long.
const AWAKE: u64 = 20_000;
/// Interval between checks of interfaces and the collector's address, ns.
const CHECK_INTERVAL: u64 = 1_000_000_000;
/// Interval between attempts to pass reports to a translator that has not accepted the last ones, ns.
const RETRY: u64 = 1_000_000;
/// Longest sleep of the thread, ns.
const LONGEST_REST: u64 = 1_000_000_000;
/// A receive timestamp older than this is considered wrong, ns.
const LONGEST_WAIT: u64 = 1_000_000_000;
/// MTU assumed if an interface reports none, bytes.
const USUAL_MTU: u16 = 1500;

/// The reason why a proposal was not activated.
#[derive(Debug)]
pub(super) struct ActivationError {
    pub(super) refused: Refused,
    /// The rules that remain active, which must be saved again. `None` if no manager may set rules.
    pub(super) active: Option<Prepared>,
}

impl ActivationError {
    pub(super) fn not_managed() -> Self {
        Self {
            refused: Refused::NotManaged,
            active: None,
        }
    }
}

/// State of the switch's thread.
#[derive(Debug)]
pub struct Forwarder {
    /// The settings of the file.
    file: SwitchSettings,
    /// The effective settings: the file's, overridden by the manager's rules.
    pub(super) settings: SwitchSettings,
    managed: Option<Managed>,
    pub(super) router: Router,
    pub(super) ports: Vec<Port>,
    pub(super) reports: Reports,
    pub(super) dta: Option<Dta>,
    /// The LLDP agent, or `None` if LLDP is disabled.
    pub(super) lldp: Option<Lldp>,
    /// The connection to the translator for which reports are intercepted.
    intercept: Option<SwitchEnd>,
    /// Frames to send, by port.
    staged: Vec<Staged>,
    clock: Clock,
    /// Buffers for frames being segmented, and for frames whose checksum is being completed.
    scratch: [Vec<u8>; 2],
    next_check: u64,
    checksum_log: ChecksumLog,
}

/// A port with its interface and sockets.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) frames: frames::Port,
    /// The reason the port is closed, until it is reopened.
    pub(super) failed: Option<String>,
    /// MTU of the interface, bytes.
    pub(super) mtu: u16,
    /// Counters of earlier sockets of the port.
    earlier_stats: frames::Stats,
}

/// Frames of one port to be sent as a burst. Buffers are reused; the first `used` hold frames.
#[derive(Debug, Default)]
struct Staged {
    frames: Vec<Vec<u8>>,
    used: usize,
}

/// The UDP socket for Telemetry Reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    sender: Option<Sender>,
    /// Datagrams sent to collectors.
    pub(super) sent: u64,
    /// Datagrams not sent, because there is no route or the kernel refused them.
    pub(super) lost: u64,
}

/// A monotonic clock that was aligned with the system clock at the start.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: u64,
}

impl Clock {
    fn new() -> Self {
        Self {
            offset: time::now().saturating_sub(time::monotonic()),
        }
    }

    fn now(self) -> u64 {
        time::monotonic() + self.offset
    }
}

/// Forwards frames until `stop` is set.
pub(super) fn run(mut forwarder: Forwarder, mut requests: Requests, stop: &AtomicBool) {
    time::wake_precisely();
    let mut poll_fds = PollFds::default();
    // Relaxed: the flag orders no other memory.
    while !stop.load(Ordering::Relaxed) {
        if requests.flag.swap(false, Ordering::Acquire) {
            while let Ok(work) = requests.work.try_recv() {
                work(&mut forwarder);
            }
        }
        // Drain the wake-up pipe after sleeping.
        if !forwarder.poll() && !forwarder.sleep(Some(&requests.wake), &mut poll_fds) {
            while matches!(requests.wake.read(&mut [0; 64]), Ok(1..)) {}
        }
    }
    forwarder.close_intercepted();
    forwarder.close_lldp();
}

impl Forwarder {
    /// Opens the interfaces. `intercept` connects to the translator for which reports are intercepted.
    ///
    /// # Errors
    /// An interface cannot be opened; the message suggests a fix.
    pub fn open(settings: SwitchSettings, intercept: Option<SwitchEnd>) -> Result<Self, CliError> {
        let mut ports = Vec::new();
        for port in &settings.ports {
            ports.push(Port::open(port, settings.ring)?);
        }
        let clock = Clock::new();
        let scratch = [Vec::new(), Vec::new()];
        let file = settings;
        let managed = file
            .managed
            .as_ref()
            .map(|managed| Managed::open(managed, clock.now()))
            .transpose()?;
        // Saved rules may refer to a port that the file no longer has.
        let settings = managed
            .as_ref()
            .map_or_else(|| Ok(file.clone()), |managed| managed.settings(&file));
        let settings = settings.map_err(|error| CliError::new(format!("[switch.managed] state: {error}")))?;
        let mut config = switch::router(&settings, &|interface| mtu_of(&ports, interface));
        if let Some(managed) = &managed {
            config.switch.available = managed.bits();
            config.ports.iter_mut().for_each(|port| managed.fit(port));
        }
        config.intercept = intercept
            .as_ref()
            .map(|end| end.destinations.clone())
            .unwrap_or_default();
        let router = Router::new(config);
        let mut router = router.map_err(|error| CliError::new(format!("[switch]: {error}")))?;
        let filters = filter::filters(&settings.filter_set());
        let filters = filters.map_err(|error| CliError::new(format!("[[switch.filter]]: {error}")))?;
        router.switch_mut().set_filters(filters);
        router.switch_mut().set_roles(filter::roles(&settings.role));
        let staged = ports.iter().map(|_| Staged::default()).collect();
        let dta = file.dta.as_ref();
        let dta = dta
            .map(|dta| Dta::open(dta, file.node, clock.now(), router.switch_mut()))
            .transpose()?;
        let lldp = Lldp::new(&file);
        let mut forwarder = Self {
            file,
            settings,
            managed,
            router,
            ports,
            reports: Reports::default(),
            dta,
            lldp,
            intercept,
            staged,
            clock,
            scratch,
            next_check: 0,
            checksum_log: ChecksumLog::default(),
        };
        if let Err(error) = forwarder.follow_map() {
            tracing::warn!(
                error,
                "the saved map of DTA collectors does not match the file, which applies until the manager sends another map"
            );
        }
        forwarder.check();
        Ok(forwarder)
    }

    /// Sleeps until work is due or `wake` is readable. Returns `true` if work is due so soon that it did not sleep.
    pub fn sleep(&self, wake: Option<&UnixStream>, poll_fds: &mut PollFds) -> bool {
        let dta = self
            .dta
            .as_ref()
            .map_or(u64::MAX, |dta| dta.next(self.router.switch()));
        let now = self.clock.now();
        let pending = self
            .intercept
            .as_ref()
            .is_some_and(|end| end.reports.is_pending());
        let retry = if pending { now + RETRY } else { u64::MAX };
        let next = self
            .router
            .next()
            .unwrap_or(u64::MAX)
            .min(self.next_check)
            .min(dta)
            .min(retry);
        let next = next.min(self.lldp.as_ref().map_or(u64::MAX, Lldp::next));
        let rest = next.saturating_sub(now);
        if rest <= AWAKE {
            std::hint::spin_loop();
            return true;
        }
        let ports = self.ports.iter().map(|port| port.frames.as_fd());
        let control = self.dta.as_ref().map(|dta| dta.sockets.control());
        let replies = self.intercept.as_ref().map(|end| end.replies.as_fd());
        let descriptors = ports
            .chain(wake.map(UnixStream::as_fd))
            .chain(control)
            .chain(replies);
        let timeout = Duration::from_nanos((rest - AWAKE / 2).min(LONGEST_REST));
        if frames::wait(descriptors, poll_fds, timeout).is_err() {
            // A failed poll means that memory is short; avoid a tight loop.
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Returns whether no frame is queued or ready to be received.
    pub fn is_empty(&self) -> bool {
        self.router.queued() == 0 && !self.ports.iter().any(|port| port.frames.is_ready())
    }

    /// Returns the router's counters, and the number of queued frames.
    pub fn totals(&self) -> (&Stats, u64) {
        (self.router.stats(), self.router.queued())
    }

    /// Returns the number of frames dropped because a port's ring was full.
    pub fn ring_full(&mut self) -> u64 {
        self.ports.iter_mut().map(|port| port.stats().ring_full).sum()
    }

    /// Runs the work that is due. Returns `false` if there was none.
    pub fn poll(&mut self) -> bool {
        let now = self.clock.now();
        if now >= self.next_check {
            self.check();
        }
        let mut busy = self.router.next().is_some_and(|next| next <= now);
        if busy {
            let mut staging = Staging::new(&mut self.staged, &mut self.intercept);
            self.router.advance(now, &mut staging);
        }
        for index in 0..self.ports.len() {
            busy |= self.receive(index) > 0;
        }
        self.exchange();
        self.announce(now);
        self.send();
        self.report();
        if let Some(dta) = &mut self.dta {
            dta.poll(now, self.router.switch_mut());
        }
        busy
    }

    /// Receives a burst of frames from a port. Returns their number.
    fn receive(&mut self, index: usize) -> usize {
        let Self {
            router,
            ports,
            staged,
            clock,
            scratch,
            intercept,
            lldp,
            ..
        } = self;
        let frames = &mut ports[index].frames;
        if !frames.is_ready() {
            return 0;
        }
        let now = clock.now();
        let mut staging = Staging::new(staged, intercept);
        frames.receive(BURST, &mut |arrived| match lldp {
            Some(lldp) if lldp::is_lldp(arrived.data) => match lldp.receive(now, index, arrived.data) {
                Ok(()) => router.consumed(index, arrived.data.len()),
                Err(_) => router.unreadable(index),
            },
            _ => receive(router, index, now, &arrived, scratch, &mut staging),
        })
    }

    /// Sends LLDPDUs that are due, and notifies the manager's long poll of changed neighbours.
    fn announce(&mut self, now: u64) {
        let Self {
            lldp: Some(lldp),
            router,
            ports,
            staged,
            settings,
            managed,
            ..
        } = self
        else {
            return;
        };
        lldp.poll(
            now,
            &settings.ports,
            &|index| ports[index].failed.is_none(),
            &mut |index, frame| {
                router.originated(index, frame.len());
                staged[index].push(frame);
            },
        );
        if let Some(managed) = managed {
            managed.set_neighbours(lldp.changes());
        }
    }

    /// Announces by LLDP that the ports are going away.
    fn close_lldp(&mut self) {
        let Self {
            lldp: Some(lldp),
            router,
            staged,
            settings,
            ..
        } = self
        else {
            return;
        };
        lldp.close(&settings.ports, &mut |index, frame| {
            router.originated(index, frame.len());
            staged[index].push(frame);
        });
        self.send();
    }

    /// Passes intercepted reports to the translator, and the translator's replies to the router.
    fn exchange(&mut self) {
        let Some(SwitchEnd { reports, replies, .. }) = &mut self.intercept else {
            return;
        };
        reports.flush();
        let now = self.clock.now();
        let mut staging = Staging {
            staged: &mut self.staged,
            reports: None,
        };
        for (destination, to, payload) in replies.receive().datagrams() {
            self.router.reply(now, destination, to, payload, &mut staging);
        }
    }

    /// Passes the last intercepted reports to the translator, which stops later, and sends its last replies.
    fn close_intercepted(&mut self) {
        self.exchange();
        self.send();
        let Some(SwitchEnd { reports, replies, .. }) = &mut self.intercept else {
            return;
        };
        let reports = reports.close();
        let messages = replies.close();
        if reports + messages > 0 {
            tracing::warn!(
                reports,
                messages,
                "datagrams between the switch and the translator are lost at the stop"
            );
        }
    }

    /// Sends all staged frames.
    fn send(&mut self) {
        for (index, staged) in self
            .staged
            .iter_mut()
            .enumerate()
            .filter(|(_, staged)| staged.used > 0)
        {
            let failed = self.ports[index].frames.send(&staged.frames[..staged.used]);
            staged.used = 0;
            (0..failed).for_each(|_| self.router.not_sent(index));
        }
    }

    /// Sends pending reports to the collector.
    fn report(&mut self) {
        let outbox = self.router.reports();
        if outbox.is_empty() {
            return;
        }
        let datagrams: Vec<&[u8]> = outbox.datagrams().map(|datagram| datagram.payload).collect();
        self.reports.send(&datagrams);
        outbox.clear();
    }

    /// Checks the interfaces once a second, reopening those that have returned, and retries an unreachable collector.
    fn check(&mut self) {
        let now = self.clock.now();
        self.next_check = now + CHECK_INTERVAL;
        self.router.flush_reports();
        let setting = self.settings.l4_checksum.name();
        self.checksum_log
            .check(now, self.settings.node, setting, self.router.switch().stats());
        if let (None, Some(to)) = (&self.reports.sender, self.settings.reports) {
            self.reports.sender = Sender::connect(unspecified(to), to).ok();
        }
        if let Some(dta) = &mut self.dta {
            dta.sockets.check();
        }
        for (port, settings) in self.ports.iter_mut().zip(&self.settings.ports) {
            port.check(settings, self.settings.ring);
        }
    }

    /// Returns the view of the DTA reporter, or `None` without one.
    pub(super) fn dta_view(&self) -> Option<super::DtaView> {
        self.dta
            .as_ref()
            .map(|dta| dta.view(self.clock.now(), self.router.switch()))
    }

    /// Returns whether a manager may install the map of DTA collectors.
    pub(super) fn accepts_dta_map(&self) -> bool {
        self.file.dta.as_ref().is_some_and(DtaSettings::accepts_map)
    }

    /// Returns the effective settings.
    pub fn settings(&self) -> &SwitchSettings {
        &self.settings
    }

    /// Clears the SF-INT registers.
    pub fn wipe_registers(&mut self) {
        self.router.switch_mut().wipe_registers();
    }

    /// Replaces the watchlist.
    ///
    /// # Errors
    /// The cause, in one sentence; nothing changes.
    pub fn watch(&mut self, watch: Vec<WatchSettings>) -> Result<(), String> {
        self.router
            .watch(switch::watchlist(&watch))
            .map_err(|error| error.to_string())?;
        self.settings.watch = watch;
        Ok(())
    }

    /// Replaces the filters. Unchanged filters keep their state.
    ///
    /// # Errors
    /// The cause, in one sentence; nothing changes.
    pub fn set_filters(&mut self, filter: Vec<FilterSettings>) -> Result<(), String> {
        self.put_filters(&SwitchSettings {
            filter,
            ..self.settings.clone()
        })
    }

    fn put_filters(&mut self, from: &SwitchSettings) -> Result<(), String> {
        self.router
            .switch_mut()
            .set_filters(filter::filters(&from.filter_set())?);
        self.settings.filter.clone_from(&from.filter);
        self.settings.filter_registers = from.filter_registers;
        self.settings.clocks = from.clocks;
        Ok(())
    }

    /// Changes the settings of a port.
    ///
    /// # Errors
    /// The cause, in one sentence; nothing changes.
    pub fn set_port(&mut self, settings: PortSettings) -> Result<(), String> {
        let index = self
            .settings
            .ports
            .iter()
            .position(|port| port.number == settings.number);
        let index = index.ok_or_else(|| format!("there is no port {}", settings.number))?;
        let mut port = switch::port(self.settings.node, &settings, self.ports[index].mtu);
        if let Some(managed) = &self.managed {
            managed.fit(&mut port);
        }
        let now = self.clock.now();
        self.router
            .advance(now, &mut Staging::new(&mut self.staged, &mut self.intercept));
        self.router
            .set_port(now, index, port)
            .map_err(|error| error.to_string())?;
        self.settings.ports[index] = settings.clone();
        self.file.ports[index] = settings;
        Ok(())
    }

    /// Returns whether a manager decides on roles, watchlist and filters.
    pub fn is_managed(&self) -> bool {
        self.managed.is_some()
    }

    /// Returns the rules of the manager, or `None` if the switch is not managed.
    pub(super) fn managed(&self) -> Option<&Managed> {
        self.managed.as_ref()
    }

    /// Checks a manager's proposal.
    ///
    /// # Errors
    /// The reason; nothing changes.
    pub(super) fn prepare(&self, proposal: Proposal) -> Result<Prepared, Refused> {
        self.managed
            .as_ref()
            .ok_or(Refused::NotManaged)?
            .prepare(proposal, &self.file)
    }

    /// Renews the manager's lease.
    ///
    /// # Errors
    /// Another manager has claimed the switch.
    pub fn renew(&mut self, election: Election) -> Result<(), Refused> {
        self.managed.as_mut().ok_or(Refused::NotManaged)?.renew(election)
    }

    /// Activates a proposal that has been prepared and saved.
    ///
    /// # Errors
    /// The reason, with the rules that remain active.
    pub(super) fn activate(&mut self, prepared: Prepared) -> Result<(), ActivationError> {
        let Some(managed) = &mut self.managed else {
            return Err(ActivationError::not_managed());
        };
        let previous_rules = managed.apply(prepared).map_err(|refused| ActivationError {
            refused,
            active: Some(managed.current()),
        })?;
        if *managed.rules() == previous_rules {
            return Ok(());
        }
        self.follow_rules().map_err(|error| {
            let active = self.managed.as_mut().map(|managed| {
                managed.restore(previous_rules);
                managed.current()
            });
            // Cannot fail: these rules were active before.
            let _ = self.follow_rules();
            ActivationError {
                refused: Refused::Wrong(error),
                active,
            }
        })
    }

    /// Configures the switch as the rules say.
    fn follow_rules(&mut self) -> Result<(), String> {
        let Some(managed) = &self.managed else {
            return Ok(());
        };
        let settings = managed.settings(&self.file)?;
        let bits = managed.bits();
        let config = switch::int_config(&settings);
        self.follow_map()?;
        let switch = self.router.switch_mut();
        switch
            .set_encoding(config.mark.dscp, config.l4_checksum)
            .map_err(|error| error.to_string())?;
        switch.set_available(bits);
        self.put_filters(&settings)?;
        self.watch(settings.watch.clone())?;
        if settings.reports != self.settings.reports {
            self.reports.sender = None;
            self.next_check = 0;
        }
        self.settings = settings;
        for port in self.settings.ports.clone() {
            self.set_port(port)?;
        }
        Ok(())
    }

    /// Uses the collectors of the manager's map for DTA reports, if there is one.
    fn follow_map(&mut self) -> Result<(), String> {
        let map = self.managed.as_ref().and_then(Managed::dta_map);
        let (Some(map), Some(dta), Some(settings)) = (map, &mut self.dta, &self.file.dta) else {
            return Ok(());
        };
        dta.follow(
            settings,
            self.file.node,
            map,
            self.clock.now(),
            self.router.switch_mut(),
        )
    }

    /// Applies the reloadable settings, and the destinations of DTA reports.
    ///
    /// # Errors
    /// The cause, in one sentence; earlier changes remain.
    pub(super) fn apply(
        &mut self,
        settings: SwitchSettings,
        destinations: Option<Destinations>,
    ) -> Result<(), String> {
        change::same_ports(&self.settings.ports, &settings.ports)?;
        let file = settings;
        let settings = match &self.managed {
            Some(managed) => managed.settings(&file)?,
            None => file.clone(),
        };
        let own = self.dta.as_mut().filter(|dta| !dta.has_map());
        if let (Some(dta), Some(destinations)) = (own, destinations) {
            dta.set_destinations(destinations, self.clock.now(), self.router.switch_mut())?;
        }
        for port in &settings.ports {
            self.set_port(port.clone())?;
        }
        self.router
            .set_routes(switch::routes(&settings))
            .map_err(|error| error.to_string())?;
        self.settings.routes.clone_from(&settings.routes);
        let switch = self.router.switch_mut();
        switch
            .set_congestion(switch::congestion(&settings))
            .map_err(|error| error.to_string())?;
        switch.set_roles(filter::roles(&settings.role));
        self.settings.queue_reports.clone_from(&settings.queue_reports);
        self.settings.role.clone_from(&settings.role);
        self.put_filters(&settings)?;
        self.watch(settings.watch)?;
        self.file = SwitchSettings {
            managed: self.file.managed.take(),
            ..file
        };
        Ok(())
    }
}

fn mtu_of(ports: &[Port], interface: &str) -> u16 {
    let port = ports.iter().find(|port| port.frames.interface() == interface);
    port.map_or(USUAL_MTU, |port| port.mtu)
}

/// Passes a received frame to the router, after segmenting it or completing a checksum left to offloads.
fn receive(
    router: &mut Router,
    port: usize,
    now: u64,
    arrived: &ReceivedFrame<'_>,
    [whole, part]: &mut [Vec<u8>; 2],
    staging: &mut Staging<'_>,
) {
    let ingress = if now.saturating_sub(arrived.received) > LONGEST_WAIT {
        now
    } else {
        arrived.received
    };
    if arrived.unusable {
        return router.unreadable(port);
    }
    if let Some(size) = arrived.unfinished.segment {
        let segmented = offload::segment(arrived.data, size, part, &mut |frame| {
            router.receive(now, port, frame, ingress, staging);
        });
        if segmented.is_err() {
            router.unreadable(port);
        }
        return;
    }
    match arrived.unfinished.checksum {
        None => router.receive(now, port, arrived.data, ingress, staging),
        Some((start, offset)) => {
            whole.clear();
            whole.extend_from_slice(arrived.data);
            match offload::complete(whole, start, offset) {
                Ok(()) => router.receive(now, port, whole, ingress, staging),
                Err(()) => router.unreadable(port),
            }
        }
    }
}

/// Collects the router's output: frames for the ports, and intercepted reports for the translator.
struct Staging<'a> {
    staged: &'a mut Vec<Staged>,
    reports: Option<&'a mut intercept::Sender>,
}

impl<'a> Staging<'a> {
    fn new(staged: &'a mut Vec<Staged>, intercept: &'a mut Option<SwitchEnd>) -> Self {
        Self {
            staged,
            reports: intercept.as_mut().map(|end| &mut end.reports),
        }
    }
}

impl Staged {
    /// Returns the buffer for the next frame.
    fn next(&mut self) -> &mut Vec<u8> {
        if self.used == self.frames.len() {
            self.frames.push(Vec::new());
        }
        self.used += 1;
        &mut self.frames[self.used - 1]
    }

    fn push(&mut self, frame: &[u8]) {
        let next = self.next();
        next.clear();
        next.extend_from_slice(frame);
    }
}

impl Wires for Staging<'_> {
    fn send(&mut self, port: usize, frame: &mut Vec<u8>) {
        if let Some(staged) = self.staged.get_mut(port) {
            std::mem::swap(staged.next(), frame);
        }
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, payload: &[u8]) -> bool {
        self.reports
            .as_mut()
            .is_some_and(|reports| reports.push(to, from, payload))
    }
}

impl Reports {
    fn send(&mut self, datagrams: &[&[u8]]) {
        let mut rest = datagrams;
        while let (Some(sender), false) = (&mut self.sender, rest.is_empty()) {
            match sender.send_burst(rest) {
                Ok(sent) => {
                    self.sent += sent as u64;
                    rest = &rest[sent..];
                }
                Err(_) => {
                    // Skip the failed datagram. A socket that cannot send at all is reopened later.
                    self.lost += 1;
                    rest = &rest[1..];
                    self.sender = None;
                }
            }
        }
        self.lost += rest.len() as u64;
    }
}

impl Port {
    fn open(settings: &PortSettings, ring: usize) -> Result<Self, CliError> {
        let interface = &settings.interface;
        for refused in frames::silence(interface) {
            tracing::warn!(interface, error = %refused, "cannot silence the network stack on the interface");
        }
        let facts = nic::device::facts(interface).ok().flatten();
        let mtu = facts.as_ref().and_then(|facts| facts.mtu);
        let mtu = mtu.map_or(USUAL_MTU, |mtu| mtu.min(u32::from(u16::MAX)) as u16);
        if let Some(configured) = settings.mtu.filter(|&configured| configured > mtu) {
            tracing::warn!(
                port = settings.number,
                interface,
                mtu = configured,
                interface_mtu = mtu,
                fix = format!("ip link set {interface} mtu {configured}"),
                "the interface drops packets that the port's mtu allows"
            );
        }
        // Room for an Ethernet header with tags, and for INT.
        let frame_len = usize::from(mtu) + 64;
        let options = Options {
            frames: ring,
            frame_len,
            ..Options::default()
        };
        let frames = frames::Port::open(interface, &options)
            .map_err(|error| CliError::new(format!("port {}: {error}", settings.number)))?;
        Ok(Self {
            frames,
            failed: None,
            mtu,
            earlier_stats: frames::Stats::default(),
        })
    }

    /// Reopens the port if its interface was removed and has returned.
    fn check(&mut self, settings: &PortSettings, ring: usize) {
        if let Some(failure) = self.frames.failure() {
            tracing::warn!(port = settings.number, error = %failure, "the port failed");
            self.failed = Some(failure.to_string());
        }
        if self.failed.is_none() {
            return;
        }
        if !self.frames.is_gone() {
            // The interface still exists, and delivers frames again once it is up.
            let up = nic::device::facts(&settings.interface)
                .ok()
                .flatten()
                .is_some_and(|facts| facts.up);
            if up {
                self.failed = None;
            }
            return;
        }
        if let Ok(reopened) = Self::open(settings, ring) {
            tracing::info!(
                port = settings.number,
                interface = settings.interface,
                "the interface has returned"
            );
            let earlier_stats = self.stats();
            *self = Self {
                earlier_stats,
                ..reopened
            };
        }
    }

    /// Returns the counters of the port, over all of its sockets.
    pub(super) fn stats(&mut self) -> frames::Stats {
        let now = self.frames.stats();
        let earlier = self.earlier_stats;
        frames::Stats {
            received: earlier.received + now.received,
            ring_full: earlier.ring_full + now.ring_full,
            sent: earlier.sent + now.sent,
            failed: earlier.failed + now.failed,
        }
    }
}

/// Returns the unspecified address of the same family, with any port.
fn unspecified(to: std::net::SocketAddr) -> std::net::SocketAddr {
    if to.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    }
}
