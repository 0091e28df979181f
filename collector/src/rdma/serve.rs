//! Packets at their queue pairs, in bursts.

use wire::Refusal;
use wire::roce::{Beginning, Beginnings, Brief, Packet, Psn};

use super::Out;
use super::config::Config;
use super::pair::Pair;
use super::regions::{Access, Entry, Regions};
use super::stats::{Reason, Stats};
use super::work::{Verdict, Work};

/// Packets that are read together. Their memory is asked for at once, and that of all bursts takes places in the processor that the
/// next frames need, too: there are 10 to 16.
const BURST: usize = 8;
/// Bursts that are under way.
const BURSTS: usize = 3;

/// Queue pairs, and what was counted.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) pairs: Vec<Option<Pair>>,
    /// Pairs that owe an acknowledgement since the last answers.
    owing: Vec<u16>,
    pub(super) stats: Stats,
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

/// Why no more packets were read.
enum End<'a> {
    Full,
    Over,
    /// This one must be read from its first byte on.
    Other(&'a [u8]),
}

/// How the last write began, and its region: as a rule the next one begins like it and goes there, too. Holds as long as no
/// queue pair and no region goes.
#[derive(Clone, Copy)]
struct Recent<'r> {
    beginning: Beginning,
    pair: u16,
    region: u8,
    entry: &'r Entry,
}

impl Burst<'_> {
    const NONE: Self = {
        let none =
            Ready { frame: &[], payload: &[], at: 0, psn: Psn::new(0), pair: 0, region: 0, ack: false };
        Self { ready: [none; BURST], len: 0 }
    };
}

impl Server {
    pub(super) fn new(config: Config) -> Self {
        let pairs = (0..config.pairs).map(|_| None).collect();
        Self { config, pairs, owing: Vec::with_capacity(config.pairs), stats: Stats::NEW }
    }

    /// Takes whole Ethernet frames.
    #[inline]
    pub(super) fn take<'a>(
        &mut self,
        regions: &Regions,
        frames: impl IntoIterator<Item = &'a [u8]>,
        out: &mut impl Out,
    ) {
        let (mut frames, mut bursts, mut recent) = (frames.into_iter(), [Burst::NONE; BURSTS], None);
        for newest in (0..BURSTS).cycle() {
            // Each burst is executed when some behind it were read: its memory has as long as that takes.
            let end = self.look(regions, &mut frames, &mut bursts[newest], &mut recent);
            let oldest = (newest + 1) % BURSTS;
            self.finish(regions, &mut bursts[oldest], out);
            if matches!(end, End::Full) {
                continue;
            }
            for later in 1..BURSTS {
                self.finish(regions, &mut bursts[(oldest + later) % BURSTS], out);
            }
            match end {
                End::Other(frame) => self.read(regions, frame, out),
                _ => break,
            }
        }
        self.acknowledge_all(regions, out);
    }

    /// Takes packets that were read, or refused, before.
    pub(super) fn take_parsed<'a>(
        &mut self,
        regions: &Regions,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Out,
    ) {
        for packet in packets {
            self.stats.packets += 1;
            match packet {
                Ok(packet) => {
                    self.execute(regions, &packet, out);
                }
                Err(refusal) => self.stats.refused[refusal.index()] += 1,
            }
        }
        self.acknowledge_all(regions, out);
    }

    /// Reads packets as long as they are like others of their queue pairs, and asks for the memory that they go to.
    #[inline(always)]
    fn look<'a, 'r>(
        &mut self,
        regions: &'r Regions,
        frames: &mut impl Iterator<Item = &'a [u8]>,
        burst: &mut Burst<'a>,
        recent: &mut Option<Recent<'r>>,
    ) -> End<'a> {
        let (mut end, mut len) = (End::Full, 0);
        for place in &mut burst.ready {
            let Some(frame) = frames.next() else {
                end = End::Over;
                break;
            };
            let Some(ready) = self.glance(regions, frame, recent) else {
                self.stats.packets += 1;
                end = End::Other(frame);
                break;
            };
            *place = ready;
            len += 1;
        }
        burst.len = len;
        self.stats.packets += len as u64;
        // All at once: the processor translates addresses side by side only if no more than a few dozen instructions lie between.
        for ready in &burst.ready[..len] {
            if let Some(entry) = regions.at(ready.region) {
                entry.memory.prefetch_write(ready.at);
            }
        }
        end
    }

    #[inline(always)]
    fn glance<'a, 'r>(
        &self,
        regions: &'r Regions,
        frame: &'a [u8],
        recent: &mut Option<Recent<'r>>,
    ) -> Option<Ready<'a>> {
        let brief = match recent.as_ref().and_then(|recent| recent.beginning.read(frame)) {
            Some(brief) => brief,
            None => self.search(regions, frame, recent)?,
        };
        let (recent, reth) = (recent.as_mut()?, &brief.reth);
        if !recent.entry.has(reth.key) {
            (recent.region, recent.entry) = regions.open(reth.key, Access::Write).ok()?;
        }
        let at = recent.entry.place(reth.address, reth.len)?;
        let Brief { payload, psn, ack_request: ack, .. } = brief;
        Some(Ready { frame, payload, at, psn, pair: recent.pair, region: recent.region, ack })
    }

    /// Reads a packet that is not like the last one.
    #[inline(never)]
    fn search<'a, 'r>(
        &self,
        regions: &'r Regions,
        frame: &'a [u8],
        recent: &mut Option<Recent<'r>>,
    ) -> Option<Brief<'a>> {
        let number = Beginnings::queue_pair(frame)?;
        let index = number & 0xfff;
        let pair = self.pairs.get(index as usize)?.as_ref().filter(|pair| pair.number == number)?;
        let beginning = pair.beginnings.of(frame)?;
        let brief = beginning.read(frame)?;
        if brief.reth.len == 0 || brief.reth.len > pair.mtu {
            return None;
        }
        let (region, entry) = regions.open(brief.reth.key, Access::Write).ok()?;
        *recent = Some(Recent { beginning: *beginning, pair: index as u16, region, entry });
        Some(brief)
    }

    /// Executes what was glanced at.
    #[inline]
    fn finish(&mut self, regions: &Regions, burst: &mut Burst<'_>, out: &mut impl Out) {
        let mut ready = &burst.ready[..std::mem::take(&mut burst.len)];
        while let Some(first) = ready.first() {
            let done = self.run(regions, ready);
            ready = &ready[done..];
            if done == 0 {
                self.read(regions, first.frame, out);
                ready = &ready[1..];
            }
        }
    }

    /// Executes the first of these writes that are one queue pair's, and those that it expects; tells how many they were.
    #[inline]
    fn run(&mut self, regions: &Regions, ready: &[Ready<'_>]) -> usize {
        let Some(first) = ready.first() else { return 0 };
        let number = first.pair;
        let Some(pair) = self.pairs.get_mut(usize::from(number)).and_then(Option::as_mut) else { return 0 };
        let Some(mut expected) = pair.takes() else { return 0 };
        let Some(entry) = regions.at(first.region) else { return 0 };
        let (mut done, mut bytes, mut ack) = (0, 0, false);
        for ready in ready {
            if ready.pair != number || ready.psn != expected || ready.region != first.region {
                break;
            }
            entry.store(ready.at, ready.payload);
            expected = expected.next();
            done += 1;
            bytes += ready.payload.len() as u64;
            ack |= ready.ack;
        }
        if done > 0 && pair.advance(done as u32, ack) {
            self.owing.push(number);
        }
        self.stats.executed += done as u64;
        self.stats.messages += done as u64;
        self.stats.bytes += bytes;
        done
    }

    /// Reads a packet from its first byte on.
    fn read(&mut self, regions: &Regions, frame: &[u8], out: &mut impl Out) {
        match Packet::parse(frame) {
            Ok(packet) => {
                if self.execute(regions, &packet, out)
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
    fn execute(&mut self, regions: &Regions, packet: &Packet<'_>, out: &mut impl Out) -> bool {
        let index = (packet.bth.queue_pair & 0xfff) as usize;
        let verdict = match self.pairs.get_mut(index).and_then(Option::as_mut) {
            Some(pair) if pair.number == packet.bth.queue_pair => {
                let mut work = Work { config: &self.config, regions, stats: &mut self.stats, out };
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
    fn acknowledge_all(&mut self, regions: &Regions, out: &mut impl Out) {
        for index in self.owing.drain(..) {
            if let Some(pair) = self.pairs.get_mut(usize::from(index)).and_then(Option::as_mut)
                && std::mem::take(&mut pair.listed)
                && std::mem::take(&mut pair.owes)
            {
                let mut work = Work { config: &self.config, regions, stats: &mut self.stats, out };
                work.acknowledge(pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::crc::{ChooseCrc32, choose_crc_32};
    use wire::roce::{Beginnings, Head, Packet, Path, Psn, Reth, Transport, Writer};

    use super::super::pair;

    /// Frames of every short payload, by either way to compute CRCs, over IPv4 and IPv6.
    #[test]
    fn both_ways_to_compute_crcs_write_and_read_the_same() {
        let ways: [ChooseCrc32; 2] = [choose_crc_32, pair::choose_crc];
        let (v4, v6) =
            (|last| [10, 0, 0, last].into(), |last| std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
        let mut random = 1_u64;
        for path in [Path::new(v4(1), v4(2), 0xc123), Path::new(v6(1), v6(2), 0xc123)] {
            let mut writers = ways.map(|way| Writer::new(path, Transport::Uc, 7).unwrap().with_crc(way));
            let mut known = ways.map(Beginnings::with_crc);
            for len in (0..=200_usize).chain([511, 512, 1000, 4096]) {
                let payload: Vec<u8> = (0..len)
                    .map(|_| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 56) as u8
                    })
                    .collect();
                let reth = Reth { address: random, key: len as u32, len: len as u32 };
                let mut frames = [vec![0; 5000], vec![0; 5000]];
                for (writer, frame) in writers.iter_mut().zip(&mut frames) {
                    let head = Head::new(Psn::new(random as u32));
                    let written = writer.write_only(frame, head, reth, &payload).unwrap();
                    frame.truncate(written);
                }
                assert_eq!(frames[0], frames[1], "{len}");
                let packet = Packet::parse(&frames[0]).unwrap();
                for known in &mut known {
                    known.learn(&frames[0], &packet);
                    let brief = known.read(&frames[0]).unwrap();
                    assert_eq!((brief.payload, brief.reth, brief.psn), (&payload[..], reth, packet.bth.psn));
                    // Not with any bit of what comes behind the headers changed.
                    let mut changed = frames[0].clone();
                    let bit = random as usize % (8 * (len.next_multiple_of(4) + 24));
                    let at = changed.len() - 1 - bit / 8;
                    changed[at] ^= 1 << (bit % 8);
                    assert_eq!(known.read(&changed), None, "{len}, bit {bit}");
                }
            }
        }
    }
}
