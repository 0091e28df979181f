//! Packets in, memory and answers out.

use wire::Refusal;
use wire::roce::{Beginnings, Packet, Psn};

use super::config::{Config, ConfigError, PairConfig, PairError, RegisterError, Registered, Registration};
use super::pair::{Pair, PairState};
use super::regions::{Access, Regions};
use super::stats::{Reason, Stats};
use super::work::{Verdict, Work};
use super::{Out, mix};

/// Packets that are under way together.
const BURST: usize = 16;

/// The software end of RoCEv2: see the [module](super).
#[derive(Debug)]
pub struct Responder {
    config: Config,
    regions: Regions,
    pairs: Vec<Option<Pair>>,
    generation: u32,
    /// Pairs that owe an acknowledgement since the last answers.
    owing: Vec<u16>,
    stats: Stats,
}

/// A write that needs no more than its bytes stored, unless its queue pair expects another one.
#[derive(Clone, Copy)]
struct Ready<'a> {
    frame: &'a [u8],
    payload: &'a [u8],
    at: u64,
    psn: Psn,
    pair: u16,
    region: u8,
    ack: bool,
}

/// Writes that are under way together: while one is read, the memory of those before is on its way to the processor.
struct Burst<'a> {
    ready: [Ready<'a>; BURST],
    len: usize,
}

impl Burst<'_> {
    fn new() -> Self {
        let none =
            Ready { frame: &[], payload: &[], at: 0, psn: Psn::new(0), pair: 0, region: 0, ack: false };
        Self { ready: [none; BURST], len: 0 }
    }
}

impl Responder {
    /// A responder with neither regions nor queue pairs.
    ///
    /// # Errors
    /// Settings that cannot be.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            regions: Regions::new(config.regions, mix(config.seed)),
            pairs: (0..config.pairs).map(|_| None).collect(),
            generation: mix(config.seed) as u32 & 0x7ff,
            owing: Vec::with_capacity(config.pairs),
            stats: Stats::NEW,
        })
    }

    /// Opens memory to requests.
    ///
    /// # Errors
    /// No place, or not memory that can be opened.
    pub fn register(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        self.regions.register(what)
    }

    /// Closes memory again; `false` if no region has this key. What is under way into it is dropped.
    pub fn deregister(&mut self, key: u32) -> bool {
        self.regions.remove(key)
    }

    /// Makes a queue pair and tells its number.
    ///
    /// # Errors
    /// No place, or a path MTU that cannot be.
    pub fn connect(&mut self, pair: &PairConfig) -> Result<u32, PairError> {
        if !matches!(pair.mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(PairError::Mtu);
        }
        let index = self.pairs.iter().position(Option::is_none).ok_or(PairError::Full)?;
        // Never 0 or 1, which mean other things, and not the number that this place had last.
        self.generation = self.generation % 0xfff + 1;
        let number = self.generation << 12 | index as u32;
        let made = Pair::new(number, pair, self.config.atomic_depth);
        self.pairs[index] = Some(made.map_err(|_| PairError::Addresses)?);
        Ok(number)
    }

    /// Forgets a queue pair; `false` if there is none of this number.
    pub fn disconnect(&mut self, number: u32) -> bool {
        let found = self.pair(number).is_some();
        if found {
            self.pairs[(number & 0xfff) as usize] = None;
        }
        found
    }

    /// Keeps the number of a queue pair, and leaves its packets to another responder, which was given that number; `false` if there is none
    /// of it. Packets that come here all the same are dropped ([`Reason::Lent`]): only one of both can know the sequence.
    pub fn lend(&mut self, number: u32) -> bool {
        let pair = self.pairs.get_mut((number & 0xfff) as usize).and_then(Option::as_mut);
        let Some(pair) = pair.filter(|pair| pair.number == number) else { return false };
        pair.state = PairState::Lent;
        true
    }

    /// The packet that a queue pair expects next: everything before it is done. For a requester that connects again.
    pub fn expected(&self, number: u32) -> Option<Psn> {
        self.pair(number).map(|pair| pair.expected)
    }

    /// How a queue pair stands.
    pub fn state(&self, number: u32) -> Option<PairState> {
        self.pair(number).map(|pair| pair.state)
    }

    /// Messages with an immediate, and sends, that a queue pair may still make.
    pub fn receives(&self, number: u32) -> Option<u32> {
        self.pair(number).map(|pair| pair.receives)
    }

    /// Lets a queue pair make so many more messages with an immediate, or sends.
    pub fn replenish(&mut self, number: u32, receives: u32) {
        if let Some(pair) = self.pairs.get_mut((number & 0xfff) as usize).and_then(Option::as_mut)
            && pair.number == number
        {
            pair.receives = pair.receives.saturating_add(receives);
        }
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn pair(&self, number: u32) -> Option<&Pair> {
        self.pairs.get((number & 0xfff) as usize)?.as_ref().filter(|pair| pair.number == number)
    }

    /// Takes whole Ethernet frames, in the order they came. Answers go to `out`; acknowledgements of writes once for all
    /// frames of this call.
    pub fn take<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>, out: &mut impl Out) {
        let mut burst = Burst::new();
        for frame in frames {
            self.stats.packets += 1;
            let Some(ready) = self.glance(frame) else {
                self.finish(&mut burst, out);
                self.read(frame, out);
                continue;
            };
            burst.ready[burst.len] = ready;
            burst.len += 1;
            if burst.len == BURST {
                self.finish(&mut burst, out);
            }
        }
        self.finish(&mut burst, out);
        self.acknowledge_all(out);
    }

    /// The same for packets that were read, or refused, before: from a UDP socket by [`Packet::parse_udp`].
    pub fn take_parsed<'a>(
        &mut self,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Out,
    ) {
        for packet in packets {
            self.stats.packets += 1;
            match packet {
                Ok(packet) => {
                    self.execute(&packet, out);
                }
                Err(refusal) => self.stats.refused[refusal.index()] += 1,
            }
        }
        self.acknowledge_all(out);
    }

    /// Reads a packet that is like others of its queue pair, looks where it goes, and asks for the memory there.
    #[inline]
    fn glance<'a>(&self, frame: &'a [u8]) -> Option<Ready<'a>> {
        let number = Beginnings::queue_pair(frame)?;
        let index = number & 0xfff;
        let pair = self.pairs.get(index as usize)?.as_ref().filter(|pair| pair.number == number)?;
        let brief = pair.beginnings.read(frame)?;
        if brief.reth.len == 0 || brief.reth.len > pair.mtu {
            return None;
        }
        let reth = &brief.reth;
        let (region, at) = self.regions.find(reth.key, reth.address, reth.len, Access::Write).ok()?;
        self.regions.at(region)?.memory.prefetch_write(at);
        Some(Ready {
            frame,
            payload: brief.payload,
            at,
            psn: brief.psn,
            pair: index as u16,
            region,
            ack: brief.ack_request,
        })
    }

    /// Executes what was glanced at.
    #[inline]
    fn finish(&mut self, burst: &mut Burst<'_>, out: &mut impl Out) {
        let ready = &burst.ready[..std::mem::take(&mut burst.len)];
        let (mut executed, mut bytes) = (0, 0);
        for ready in ready {
            if let Some(pair) = self.pairs.get_mut(usize::from(ready.pair)).and_then(Option::as_mut)
                && pair.takes(ready.psn)
                && let Some(entry) = self.regions.at(ready.region)
            {
                entry.store(ready.at, ready.payload);
                executed += 1;
                bytes += ready.payload.len() as u64;
                if pair.advance(ready.psn, ready.ack) {
                    self.owing.push(ready.pair);
                }
            } else {
                self.read(ready.frame, out);
            }
        }
        self.stats.executed += executed;
        self.stats.messages += executed;
        self.stats.bytes += bytes;
    }

    /// Reads a packet from its first byte on.
    fn read(&mut self, frame: &[u8], out: &mut impl Out) {
        match Packet::parse(frame) {
            Ok(packet) => {
                if self.execute(&packet, out)
                    && let Some(pair) = self.pairs.get_mut((packet.bth.queue_pair & 0xfff) as usize)
                    && let Some(pair) = pair.as_mut()
                {
                    pair.beginnings.learn(frame, &packet);
                }
            }
            Err(refusal) => self.stats.refused[refusal.index()] += 1,
        }
    }

    /// Executes a packet; whether it was.
    fn execute(&mut self, packet: &Packet<'_>, out: &mut impl Out) -> bool {
        let index = (packet.bth.queue_pair & 0xfff) as usize;
        let verdict = match self.pairs.get_mut(index).and_then(Option::as_mut) {
            Some(pair) if pair.number == packet.bth.queue_pair => {
                let mut work =
                    Work { config: &self.config, regions: &self.regions, stats: &mut self.stats, out };
                let verdict = work.execute(pair, packet);
                if pair.owes && !pair.listed {
                    pair.listed = true;
                    self.owing.push(index as u16);
                }
                verdict
            }
            _ => Verdict::Dropped(Reason::UnknownPair),
        };
        match verdict {
            Verdict::Executed => self.stats.executed += 1,
            Verdict::Duplicate => self.stats.duplicates += 1,
            Verdict::Dropped(reason) => self.stats.dropped[reason as usize] += 1,
        }
        matches!(verdict, Verdict::Executed)
    }

    /// Acknowledges what was executed since the last time.
    fn acknowledge_all(&mut self, out: &mut impl Out) {
        for index in self.owing.drain(..) {
            if let Some(pair) = self.pairs.get_mut(usize::from(index)).and_then(Option::as_mut)
                && std::mem::take(&mut pair.listed)
                && std::mem::take(&mut pair.owes)
            {
                let mut work =
                    Work { config: &self.config, regions: &self.regions, stats: &mut self.stats, out };
                work.acknowledge(pair);
            }
        }
    }
}
