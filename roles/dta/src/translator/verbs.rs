//! Implements [`Transport`] on an RDMA device ([`nic::verbs`]), with one unreliable and one reliable queue pair per collector.
//!
//! The device itself retransmits lost packets on a working connection. When a connection breaks, the requests that it had not
//! completed are posted to the next one: their data is still in the send slots, and [`OutstandingRequest`] holds their targets. Without a
//! connection the transport refuses all operations, and the translator buffers reliable ones in local memory.

use std::{collections::VecDeque, net::IpAddr};

use nic::verbs::{Device, Peer, Sender};
use rdma::requester::{Cause, Connection, End, Event, GivenUp, Offer, Refused, RemoteRegion, State, Stats};
use rdma::transport::{Blocked, Credit, RemoteAddr, Transport};
use wire::roce::Psn;

/// Maximum number of outstanding requests per queue pair.
const QUEUE_DEPTH: u32 = 1024;
/// Longest request, bytes. Longer writes are split.
const MAX_REQUEST_LEN: usize = 8192;
/// Poll interval of completion queues while requests are outstanding, ns.
const POLL_INTERVAL: u64 = 1_000_000;
/// PSN of the peer's first packet, which it never sends.
const PEER_PSN: u32 = 0;

/// The RDMA device and the links to all collectors.
#[derive(Debug)]
pub(super) struct Verbs {
    device: Device,
    links: Vec<VerbsLink>,
    seed: u32,
    now: u64,
}

/// An outstanding request on a reliable queue pair.
#[derive(Clone, Copy, Debug)]
struct OutstandingRequest {
    region: u16,
    /// True for the last request of its operation.
    is_last: bool,
    operation: Operation,
    offset: u64,
    len: u32,
    /// True if the region has been replaced, so that the request must not be posted again.
    is_outdated: bool,
}

/// A request's operation: a write, with its immediate, or a fetch-and-add of a delta.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Write(Option<u32>),
    Add(u64),
}

/// The target of a request: a region and an offset.
#[derive(Clone, Copy, Debug)]
struct Target {
    region: u16,
    /// Offset within the region, bytes.
    offset: u64,
}

#[derive(Debug)]
struct VerbsLink {
    /// Queue pairs of an offer that the collector has not accepted yet.
    offered: Option<QueuePairs>,
    /// Queue pairs of the latest connection.
    connected: Option<QueuePairs>,
    regions: Vec<RemoteRegion>,
    /// Outstanding requests on the reliable queue pair, in posting order.
    outstanding: VecDeque<OutstandingRequest>,
    state: State,
    event: Option<Cause>,
    stats: Stats,
}

#[derive(Debug)]
struct QueuePairs {
    unreliable: Sender,
    reliable: Sender,
    /// First PSNs of the unreliable and the reliable queue pair.
    first_psns: [u32; 2],
}

impl Verbs {
    /// Opens the device with this address, for a number of collectors.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn open(address: IpAddr, collectors: usize, seed: u32) -> Result<Self, nic::Error> {
        let links = (0..collectors).map(|_| VerbsLink {
            offered: None,
            connected: None,
            regions: Vec::new(),
            outstanding: VecDeque::with_capacity(QUEUE_DEPTH as usize),
            state: State::Down,
            event: None,
            stats: Stats::default(),
        });
        Ok(Self {
            device: Device::open(address)?,
            links: links.collect(),
            seed,
            now: 0,
        })
    }

    fn link(&mut self, collector: u8) -> Option<&mut VerbsLink> {
        self.links.get_mut(usize::from(collector))
    }

    /// Returns the device's path MTU, bytes.
    pub(super) fn mtu(&self) -> u16 {
        self.device.mtu()
    }

    /// Creates new queue pairs for a collector.
    ///
    /// # Errors
    /// The reason, as one sentence.
    pub(super) fn offer(&mut self, collector: u8) -> Result<Offer, String> {
        // Drop an offer that was not accepted; connected queue pairs stay until the new ones take over.
        if let Some(link) = self.link(collector) {
            link.offered = None;
        }
        let mut unreliable = self.new_sender(false)?;
        let mut reliable = self.new_sender(true)?;
        // The next pseudo-random PSNs (an LCG), 24 bits each, which differ from the previous ones.
        self.seed = self.seed.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        let first_psns = [self.seed >> 8, self.seed & 0xff_ffff];
        let numbers = [unreliable.queue_pair().number(), reliable.queue_pair().number()];
        let link = self.link(collector).ok_or("no such collector")?;
        link.offered = Some(QueuePairs {
            unreliable,
            reliable,
            first_psns,
        });
        let [unreliable, reliable] = [0, 1].map(|index| End {
            queue_pair: numbers[index],
            psn: Psn::new(first_psns[index]),
        });
        Ok(Offer { unreliable, reliable })
    }

    fn new_sender(&self, reliable: bool) -> Result<Sender, String> {
        Sender::new(&self.device, reliable, QUEUE_DEPTH, MAX_REQUEST_LEN).map_err(|error| error.to_string())
    }

    /// Connects the queue pairs of the last offer, which the collector accepted.
    ///
    /// # Errors
    /// The reason, as one sentence.
    pub(super) fn connect(&mut self, collector: u8, to: &Connection<'_>) -> Result<(), String> {
        let mtu = to.mtu as u16;
        let link = self.link(collector).ok_or("no such collector")?;
        let mut pairs = link.offered.take().ok_or("nothing was offered")?;
        let (Some(unreliable), Some(reliable)) = (to.unreliable, to.reliable) else {
            return Err("it does not have both a reliable and an unreliable queue pair".to_owned());
        };
        if to
            .regions
            .iter()
            .any(|region| region.address.checked_add(region.len).is_none())
        {
            return Err("one of its regions does not lie within 64 bits of addresses".to_owned());
        }
        let ends = [
            (&mut pairs.unreliable, unreliable),
            (&mut pairs.reliable, reliable),
        ];
        for ((sender, queue_pair), own_psn) in ends.into_iter().zip(pairs.first_psns) {
            let peer = Peer {
                address: to.path.destination,
                queue_pair,
                psn: PEER_PSN,
                own_psn,
                mtu,
            };
            sender
                .queue_pair()
                .connect(&peer)
                .map_err(|error| error.to_string())?;
        }
        link.regions = to.regions.to_vec();
        link.take_over(pairs);
        Ok(())
    }

    pub(super) fn disconnect(&mut self, collector: u8) {
        if let Some(link) = self.link(collector) {
            link.poll();
            // Keep the queue pairs with their outstanding requests, which the next pairs repeat.
            link.state = State::Down;
        }
    }

    pub(super) fn state(&self, collector: u8) -> State {
        self.links
            .get(usize::from(collector))
            .map_or(State::Down, |link| link.state)
    }

    pub(super) fn stats(&self, collector: u8) -> Option<&Stats> {
        self.links.get(usize::from(collector)).map(|link| &link.stats)
    }

    pub(super) fn tick(&mut self, now: u64) {
        self.now = now;
        self.links.iter_mut().for_each(VerbsLink::poll);
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.links
            .iter()
            .any(|link| link.state == State::Up && !link.outstanding.is_empty())
            .then(|| self.now.saturating_add(POLL_INTERVAL))
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.links.iter_mut().enumerate().find_map(|(collector, link)| {
            let cause = link.event.take()?;
            Some(Event::Broken {
                collector: collector as u8,
                cause,
            })
        })
    }
}

impl VerbsLink {
    /// Switches to new queue pairs, and first posts the previous pairs' outstanding requests on them.
    fn take_over(&mut self, mut pairs: QueuePairs) {
        self.poll();
        let previous = self.connected.take();
        let first = previous.as_ref().map_or(0, |pairs| pairs.reliable.completed());
        let count = self.outstanding.len();
        let mut data = vec![0; MAX_REQUEST_LEN];
        for request in first..first + count as u64 {
            let Some(outstanding) = self.outstanding.pop_front() else {
                break;
            };
            let data = &mut data[..outstanding.len as usize];
            let len = match outstanding.operation {
                Operation::Add(_) => 8,
                Operation::Write(_) => u64::from(outstanding.len).max(1),
            };
            let target = locate(&self.regions, outstanding.region, outstanding.offset, len);
            let is_sent = match (outstanding.operation, target) {
                _ if outstanding.is_outdated => false,
                // The region may lie elsewhere now.
                (Operation::Add(_), Ok(RemoteBytes { address, .. })) if !address.is_multiple_of(8) => false,
                (Operation::Add(delta), Ok(RemoteBytes { address, rkey })) => {
                    self.stats.uncertain_fetch_adds += 1;
                    pairs.reliable.fetch_add(address, rkey, delta).is_ok()
                }
                (Operation::Write(immediate), Ok(RemoteBytes { address, rkey })) => {
                    self.stats.uncertain_immediates += u64::from(immediate.is_some());
                    previous
                        .as_ref()
                        .is_some_and(|previous| previous.reliable.copy_pending(request, data))
                        && pairs.reliable.write(address, rkey, data, immediate).is_ok()
                }
                (_, Err(_)) => false,
            };
            if is_sent {
                self.stats.frames += 1;
                self.stats.retransmitted += 1;
                self.outstanding.push_back(outstanding);
            } else if outstanding.is_last {
                self.stats.given_up[GivenUp::NoPlace as usize] += 1;
                self.stats.unacknowledged -= 1;
            }
        }
        self.connected = Some(pairs);
        self.state = State::Up;
        self.stats.connections += 1;
    }

    /// Polls the completion queues, and detects a broken queue pair.
    fn poll(&mut self) {
        let Some(pairs) = &mut self.connected else { return };
        let completed_before = pairs.reliable.completed();
        pairs.unreliable.poll();
        pairs.reliable.poll();
        for _ in completed_before..pairs.reliable.completed() {
            if self
                .outstanding
                .pop_front()
                .is_some_and(|request| request.is_last)
            {
                self.stats.acknowledged += 1;
                self.stats.unacknowledged -= 1;
            }
        }
        if self.state == State::Up
            && let Some(status) = pairs.reliable.error_status().or(pairs.unreliable.error_status())
        {
            tracing::warn!("an RDMA request failed: {}", nic::verbs::status_name(status));
            let cause = cause(status);
            self.state = State::Broken(cause);
            self.event = Some(cause);
            self.stats.broken += 1;
        }
    }

    fn count_refused(&mut self, refused: Refused) -> Blocked {
        self.stats.refused[refused as usize] += 1;
        match refused {
            Refused::Down => Blocked::Broken,
            Refused::NoRegion | Refused::NoReliable => Blocked::NoRegion,
            Refused::OutOfRange | Refused::Misaligned | Refused::TooLong => Blocked::OutOfRegion,
            Refused::Paused => Blocked::Paused,
            Refused::OutboxFull | Refused::RetransmitFull => Blocked::Full,
        }
    }

    fn credit(&self, reliable: bool) -> u32 {
        let Some(pairs) = self.connected.as_ref().filter(|_| self.state == State::Up) else {
            return 0;
        };
        // An operation may need two requests.
        if reliable {
            pairs.reliable.free_slots() / 2
        } else {
            pairs.unreliable.free_slots() / 2
        }
    }

    /// Posts a write, split into several requests if it is long. The last one carries the immediate.
    fn write(
        &mut self,
        target: Target,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Refused> {
        let Target { region, offset } = target;
        let RemoteBytes { address, rkey } = locate(&self.regions, region, offset, data.len() as u64)?;
        let is_up = self.state == State::Up;
        let pairs = self.connected.as_mut().filter(|_| is_up).ok_or(Refused::Down)?;
        let sender = if reliable {
            &mut pairs.reliable
        } else {
            &mut pairs.unreliable
        };
        let requests = data.len().div_ceil(MAX_REQUEST_LEN).max(1);
        if (sender.free_slots() as usize) < requests {
            return Err(if reliable {
                Refused::RetransmitFull
            } else {
                Refused::OutboxFull
            });
        }
        for request in 0..requests {
            let start = request * MAX_REQUEST_LEN;
            let part = &data[start..data.len().min(start + MAX_REQUEST_LEN)];
            let is_last = request + 1 == requests;
            let immediate = immediate.filter(|_| is_last);
            if sender
                .write(address + start as u64, rkey, part, immediate)
                .is_err()
            {
                // There was room, so the device itself refused. Earlier requests of this write may already be posted.
                return Err(if reliable {
                    Refused::RetransmitFull
                } else {
                    Refused::OutboxFull
                });
            }
            self.stats.frames += 1;
            self.stats.bytes += part.len() as u64;
            if reliable {
                self.outstanding.push_back(OutstandingRequest {
                    region,
                    is_last,
                    operation: Operation::Write(immediate),
                    offset: offset + start as u64,
                    len: part.len() as u32,
                    is_outdated: false,
                });
            }
        }
        self.stats.reliable += u64::from(reliable);
        self.stats.unacknowledged += u64::from(reliable);
        self.stats.unreliable += u64::from(!reliable);
        Ok(())
    }

    /// Posts an atomic fetch-and-add on the reliable queue pair.
    fn fetch_add(&mut self, target: Target, delta: u64) -> Result<(), Refused> {
        let Target { region, offset } = target;
        let RemoteBytes { address, rkey } = locate(&self.regions, region, offset, 8)?;
        if !address.is_multiple_of(8) {
            return Err(Refused::Misaligned);
        }
        let is_up = self.state == State::Up;
        let pairs = self.connected.as_mut().filter(|_| is_up).ok_or(Refused::Down)?;
        // Two: an immediate may follow in a separate request.
        if pairs.reliable.free_slots() < 2 || pairs.reliable.fetch_add(address, rkey, delta).is_err() {
            return Err(Refused::RetransmitFull);
        }
        self.outstanding.push_back(OutstandingRequest {
            region,
            is_last: true,
            operation: Operation::Add(delta),
            offset,
            len: 0,
            is_outdated: false,
        });
        self.stats.frames += 1;
        self.stats.reliable += 1;
        self.stats.unacknowledged += 1;
        self.stats.fetch_adds += 1;
        Ok(())
    }
}

impl Transport for Verbs {
    fn credit(&self, collector: u8, reliable: bool) -> Credit {
        let messages = self
            .links
            .get(usize::from(collector))
            .map_or(0, |link| link.credit(reliable));
        Credit {
            messages,
            bytes: u64::from(messages) * MAX_REQUEST_LEN as u64,
        }
    }

    fn give_up(&mut self, remote: RemoteAddr) {
        if let Some(link) = self.link(remote.collector) {
            for request in &mut link.outstanding {
                request.is_outdated |= request.region == remote.region;
            }
        }
    }

    fn is_connected(&self, collector: u8) -> bool {
        self.state(collector) == State::Up
    }

    fn write(
        &mut self,
        remote: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked> {
        let link = self.link(remote.collector).ok_or(Blocked::NoRegion)?;
        let target = Target {
            region: remote.region,
            offset,
        };
        link.write(target, data, immediate, reliable)
            .or_else(|refused| {
                // The device may have completed requests since the last poll, so poll and retry once.
                if matches!(refused, Refused::RetransmitFull | Refused::OutboxFull) {
                    link.poll();
                    return link.write(target, data, immediate, reliable);
                }
                Err(refused)
            })
            .map_err(|refused| link.count_refused(refused))
    }

    fn add(
        &mut self,
        remote: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        let link = self.link(remote.collector).ok_or(Blocked::NoRegion)?;
        let target = Target {
            region: remote.region,
            offset,
        };
        link.fetch_add(target, delta)
            .map_err(|refused| link.count_refused(refused))?;
        if immediate.is_some() {
            // There is room: `fetch_add` checked for two requests.
            link.write(target, &[], immediate, true)
                .map_err(|refused| link.count_refused(refused))?;
        }
        Ok(())
    }
}

/// Bytes of remote memory, as an RDMA request names them.
struct RemoteBytes {
    address: u64,
    rkey: u32,
}

/// Locates `len` bytes of a region.
fn locate(regions: &[RemoteRegion], region: u16, offset: u64, len: u64) -> Result<RemoteBytes, Refused> {
    let known_region = regions
        .iter()
        .find(|known| known.region == region)
        .ok_or(Refused::NoRegion)?;
    let end = offset.checked_add(len).ok_or(Refused::OutOfRange)?;
    if end > known_region.len {
        return Err(Refused::OutOfRange);
    }
    Ok(RemoteBytes {
        address: known_region.address + offset,
        rkey: known_region.rkey,
    })
}

/// `IBV_WC_REM_INV_REQ_ERR` of `enum ibv_wc_status` (infiniband/verbs.h).
const REMOTE_INVALID_REQUEST: u32 = 9;
/// `IBV_WC_REM_ACCESS_ERR` of the same enumeration.
const REMOTE_ACCESS: u32 = 10;
/// `IBV_WC_REM_OP_ERR` of the same enumeration.
const REMOTE_OPERATION: u32 = 11;

/// Converts a work completion status of libibverbs.
fn cause(status: u32) -> Cause {
    match status {
        REMOTE_INVALID_REQUEST => Cause::InvalidRequest,
        REMOTE_ACCESS => Cause::RemoteAccess,
        REMOTE_OPERATION => Cause::RemoteOperational,
        _ => Cause::NoResponse,
    }
}
