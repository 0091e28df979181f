//! Packets in, memory and answers out.

use wire::Refusal;
use wire::roce::{Packet, Psn};

use super::config::{Config, ConfigError, PairConfig, PairError, RegisterError, Registered, Registration};
use super::pair::{Pair, PairState};
use super::regions::Regions;
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
        self.take_parsed(frames.into_iter().map(Packet::parse), out);
    }

    /// The same for packets that were read, or refused, before.
    pub fn take_parsed<'a>(
        &mut self,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Out,
    ) {
        let mut packets = packets.into_iter();
        loop {
            let mut burst: [Option<Packet<'a>>; BURST] = [None; BURST];
            let mut taken = 0;
            for (place, packet) in burst.iter_mut().zip(packets.by_ref()) {
                taken += 1;
                match packet {
                    Ok(packet) => {
                        if let Some(reth) = &packet.reth {
                            self.regions.prefetch(reth.key, reth.address);
                        }
                        *place = Some(packet);
                    }
                    Err(refusal) => self.stats.refused[refusal.index()] += 1,
                }
            }
            self.stats.packets += taken;
            for packet in burst.iter().flatten() {
                self.execute(packet, out);
            }
            if taken < BURST as u64 {
                break;
            }
        }
        self.acknowledge_all(out);
    }

    fn execute(&mut self, packet: &Packet<'_>, out: &mut impl Out) {
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
