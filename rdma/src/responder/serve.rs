//! The RoCEv2 responder's loop over a burst of frames, with a fast path for consecutive single-packet writes.
//!
//! Most frames differ from their predecessor only in PSN, address and payload. The fast path compares a frame with the
//! header template of the last write, checks PSN, R_Key and range, and stores the payload. Consecutive hits form a [`Run`]
//! that is counted once ([`Server::add_run`]). Any other frame ends the run and is parsed in full. The memory of later
//! frames is prefetched while earlier ones are executed.

use wire::Refusal;
use wire::roce::{Brief, HeaderTemplate, HeaderTemplates, Packet, Psn};

use super::Output;
use super::config::Config;
use super::execution::{PacketExecution, Verdict};
use super::queue_pair::QueuePair;
use super::regions::{Access, Entry, Regions};
use super::stats::{Reason, Stats};

/// Packets prefetched together. The CPU overlaps address translations (TLB misses) only within a few dozen instructions.
const PREFETCH_BATCH: usize = 8;
/// Prefetch distance, packets. A longer one does not help: a core has 10 to 16 line fill buffers, which loads of the next
/// frames also use.
const PREFETCH_DISTANCE: usize = 2 * PREFETCH_BATCH;

/// Queue pairs, due acknowledgements and counters.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) queue_pairs: Vec<Option<QueuePair>>,
    /// Queue pairs with a due acknowledgement.
    acks_due: Vec<u16>,
    pub(super) stats: Stats,
}

/// Header template and region of the last write. Valid only until a queue pair or a region is removed.
#[derive(Clone, Copy)]
struct RecentWrite<'r> {
    template: HeaderTemplate,
    queue_pair: u16,
    entry: &'r Entry,
}

/// Consecutive single-packet writes on one queue pair, executed but not yet counted.
#[derive(Clone, Copy, Default)]
struct Run {
    /// PSN that the next write of the run must have.
    expected: Psn,
    /// Number of executed writes.
    count: u32,
    /// One of them requests an acknowledgement.
    ack: bool,
}

impl RecentWrite<'_> {
    /// Executes a frame that matches the template and has the expected PSN. Returns `false`, having written nothing, for
    /// any other.
    fn execute(&self, frame: &[u8], run: &mut Run) -> bool {
        self.template
            .read(frame)
            .is_some_and(|brief| self.store(&brief, brief.payload, run))
    }

    /// Executes up to `max_frames` matching frames. Returns the first frame that does not match, and the number executed before
    /// it.
    #[inline(always)]
    fn execute_matching<'a>(
        &self,
        frames: &mut impl Iterator<Item = &'a [u8]>,
        max_frames: usize,
        run: &mut Run,
    ) -> (Option<&'a [u8]>, usize) {
        match self.template.payload_len() {
            8 if !self.template.is_v6() => self.execute_sized::<8>(frames, max_frames, run),
            16 if !self.template.is_v6() => self.execute_sized::<16>(frames, max_frames, run),
            24 if !self.template.is_v6() => self.execute_sized::<24>(frames, max_frames, run),
            32 if !self.template.is_v6() => self.execute_sized::<32>(frames, max_frames, run),
            80 if !self.template.is_v6() => self.execute_sized::<80>(frames, max_frames, run),
            _ => execute_while(frames, max_frames, run, |frame, run| self.execute(frame, run)),
        }
    }

    /// Specialized loop for common payload lengths (slots, and batches of 16 entries of 4 bytes): a constant length saves
    /// many instructions per frame.
    #[inline(never)]
    fn execute_sized<'a, const LEN: usize>(
        &self,
        frames: &mut impl Iterator<Item = &'a [u8]>,
        max_frames: usize,
        run: &mut Run,
    ) -> (Option<&'a [u8]>, usize) {
        execute_while(frames, max_frames, run, |frame, run| {
            let brief = self.template.read_v4::<LEN>(frame);
            let sized = brief.and_then(|brief| Some((brief, brief.payload.first_chunk::<LEN>()?)));
            sized.is_some_and(|(brief, payload)| self.store(&brief, payload, run))
        })
    }

    /// Stores a write with the expected PSN whose R_Key and range are valid. Returns `false`, having written nothing, for
    /// any other.
    #[inline(always)]
    fn store(&self, brief: &Brief<'_>, payload: &[u8], run: &mut Run) -> bool {
        if brief.psn != run.expected || !self.entry.has_rkey(brief.reth.rkey) {
            return false;
        }
        let Some(offset) = self.entry.locate(brief.reth.address, brief.reth.len) else {
            return false;
        };
        self.entry.store(offset, payload);
        run.expected = brief.psn.next();
        run.ack |= brief.ack_request;
        true
    }
}

/// Calls `execute` on up to `max_frames` frames until one fails, and adds the executed ones to `run`. Returns the frame that
/// failed, and the number executed.
#[inline(always)]
fn execute_while<'a>(
    frames: &mut impl Iterator<Item = &'a [u8]>,
    max_frames: usize,
    run: &mut Run,
    execute: impl Fn(&'a [u8], &mut Run) -> bool,
) -> (Option<&'a [u8]>, usize) {
    let mut current = *run;
    for executed in 0..max_frames {
        let frame = frames.next();
        if !frame.is_some_and(|frame| execute(frame, &mut current)) {
            *run = Run {
                count: run.count + executed as u32,
                ..current
            };
            return (frame, executed);
        }
    }
    *run = Run {
        count: run.count + max_frames as u32,
        ..current
    };
    (None, max_frames)
}

/// Prefetches the memory that the next frames are likely to write.
#[inline(always)]
fn prefetch<'a>(
    regions: &Regions,
    ahead: &mut impl Iterator<Item = &'a [u8]>,
    recent: Option<&RecentWrite<'_>>,
) {
    for frame in ahead.take(PREFETCH_BATCH) {
        let Some(recent) = recent else { continue };
        let Some(header) = recent.template.peek(frame) else {
            continue;
        };
        let in_recent_region = recent
            .entry
            .locate(header.address, 1)
            .map(|offset| (recent.entry, offset));
        let target = in_recent_region.or_else(|| {
            let entry = regions.containing(header.address)?;
            entry.locate(header.address, 1).map(|offset| (entry, offset))
        });
        if let Some((entry, offset)) = target {
            entry.memory.prefetch_write(offset);
        }
    }
}

impl Server {
    pub(super) fn new(config: Config) -> Self {
        let queue_pairs = (0..config.queue_pairs).map(|_| None).collect();
        Self {
            config,
            queue_pairs,
            acks_due: Vec::with_capacity(config.queue_pairs),
            stats: Stats::default(),
        }
    }

    /// Processes whole Ethernet frames.
    #[inline]
    pub(super) fn process<'a>(
        &mut self,
        regions: &Regions,
        frames: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        out: &mut impl Output,
    ) {
        let mut frames = frames.into_iter();
        let mut ahead = frames.clone();
        let mut recent = frames
            .clone()
            .next()
            .and_then(|frame| self.find_recent(regions, frame));
        let mut run = self.begin_run(&mut recent);
        for _ in 0..PREFETCH_DISTANCE / PREFETCH_BATCH {
            prefetch(regions, &mut ahead, recent.as_ref());
        }
        loop {
            prefetch(regions, &mut ahead, recent.as_ref());
            let mut remaining_frames = PREFETCH_BATCH;
            while remaining_frames > 0 {
                let (frame, executed) = match &recent {
                    Some(recent) => recent.execute_matching(&mut frames, remaining_frames, &mut run),
                    None => (frames.next(), 0),
                };
                remaining_frames -= executed;
                if remaining_frames == 0 {
                    break;
                }
                let Some(frame) = frame else {
                    self.add_run(recent.as_ref(), &run);
                    return self.acknowledge_all(regions, out);
                };
                remaining_frames -= 1;
                self.add_run(recent.as_ref(), &run);
                let new_recent = self.find_recent(regions, frame);
                let has_new_template = new_recent.is_some();
                recent = new_recent.or(recent);
                run = self.begin_run(&mut recent);
                if has_new_template
                    && recent
                        .as_ref()
                        .is_some_and(|recent| recent.execute(frame, &mut run))
                {
                    run.count += 1;
                    continue;
                }
                self.stats.packets += 1;
                self.parse_and_execute(regions, frame, out);
                run = self.begin_run(&mut recent);
            }
        }
    }

    /// Processes packets that are parsed already.
    pub(super) fn process_parsed<'a>(
        &mut self,
        regions: &Regions,
        packets: impl IntoIterator<Item = Result<Packet<'a>, Refusal>>,
        out: &mut impl Output,
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

    /// Returns the template and region for a frame that looks like the next write of its queue pair. The frame is not yet
    /// validated.
    #[inline(never)]
    fn find_recent<'r>(&self, regions: &'r Regions, frame: &[u8]) -> Option<RecentWrite<'r>> {
        let number = HeaderTemplates::queue_pair(frame)?;
        // The low 12 bits of a queue pair number are its index; the rest is a generation.
        let index = number & 0xfff;
        let queue_pair = self
            .queue_pairs
            .get(index as usize)?
            .as_ref()
            .filter(|queue_pair| queue_pair.number == number)?;
        let template = queue_pair.templates.of(frame)?;
        let header = template.peek(frame)?;
        if queue_pair.fast_path_psn()? != header.psn
            || template.payload_len() == 0
            || template.payload_len() > queue_pair.mtu
        {
            return None;
        }
        let (_, entry) = regions.find_by_rkey(header.rkey, Access::Write).ok()?;
        Some(RecentWrite {
            template: *template,
            queue_pair: index as u16,
            entry,
        })
    }

    /// Starts a run, or clears `recent` if its queue pair must not use the fast path.
    #[inline]
    fn begin_run(&self, recent: &mut Option<RecentWrite<'_>>) -> Run {
        let queue_pair = recent
            .as_ref()
            .and_then(|recent| self.queue_pairs.get(usize::from(recent.queue_pair))?.as_ref());
        match queue_pair.and_then(QueuePair::fast_path_psn) {
            Some(expected) => Run {
                expected,
                ..Run::default()
            },
            None => {
                *recent = None;
                Run::default()
            }
        }
    }

    /// Adds a finished run to the queue pair and the counters.
    #[inline]
    fn add_run(&mut self, recent: Option<&RecentWrite<'_>>, run: &Run) {
        let Some(recent) = recent else { return };
        if run.count == 0 {
            return;
        }
        if let Some(queue_pair) = self
            .queue_pairs
            .get_mut(usize::from(recent.queue_pair))
            .and_then(Option::as_mut)
            && queue_pair.advance(run.count, run.ack)
        {
            self.acks_due.push(recent.queue_pair);
        }
        self.stats.packets += u64::from(run.count);
        self.stats.executed += u64::from(run.count);
        self.stats.messages += u64::from(run.count);
        self.stats.bytes += u64::from(run.count) * u64::from(recent.template.payload_len());
    }

    /// Slow path: parses a frame from its first byte, executes it, and learns its header template.
    fn parse_and_execute(&mut self, regions: &Regions, frame: &[u8], out: &mut impl Output) {
        match Packet::parse(frame) {
            Ok(packet) => {
                if self.execute(regions, &packet, out)
                    && let Some(queue_pair) =
                        self.queue_pairs.get_mut((packet.bth.queue_pair & 0xfff) as usize)
                    && let Some(queue_pair) = queue_pair.as_mut()
                {
                    queue_pair.templates.learn(frame, &packet);
                }
            }
            Err(refusal) => self.stats.refused[refusal.index()] += 1,
        }
    }

    /// Executes a parsed packet. Returns whether it was valid and not a duplicate.
    fn execute(&mut self, regions: &Regions, packet: &Packet<'_>, out: &mut impl Output) -> bool {
        let index = (packet.bth.queue_pair & 0xfff) as usize;
        let verdict = match self.queue_pairs.get_mut(index).and_then(Option::as_mut) {
            Some(queue_pair) if queue_pair.number == packet.bth.queue_pair => {
                let mut execution = PacketExecution {
                    config: &self.config,
                    regions,
                    stats: &mut self.stats,
                    out,
                };
                let verdict = execution.execute(queue_pair, packet);
                if queue_pair.ack_due && !queue_pair.is_ack_listed {
                    queue_pair.is_ack_listed = true;
                    self.acks_due.push(index as u16);
                }
                verdict
            }
            _ => Verdict::Dropped(Reason::UnknownQueuePair),
        };
        match verdict {
            Verdict::Executed => self.stats.executed += 1,
            Verdict::Duplicate => self.stats.duplicates += 1,
            Verdict::Dropped(reason) => self.stats.dropped[reason as usize] += 1,
        }
        matches!(verdict, Verdict::Executed)
    }

    /// Sends all acknowledgements that are due.
    fn acknowledge_all(&mut self, regions: &Regions, out: &mut impl Output) {
        for index in self.acks_due.drain(..) {
            if let Some(queue_pair) = self
                .queue_pairs
                .get_mut(usize::from(index))
                .and_then(Option::as_mut)
                && std::mem::take(&mut queue_pair.is_ack_listed)
                && std::mem::take(&mut queue_pair.ack_due)
            {
                let mut execution = PacketExecution {
                    config: &self.config,
                    regions,
                    stats: &mut self.stats,
                    out,
                };
                execution.acknowledge(queue_pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::crc::{ChooseCrc32, choose_crc_32};
    use wire::roce::{Head, HeaderTemplates, Packet, Path, Psn, Reth, Transport, Writer};

    use super::super::queue_pair;

    /// Writes and reads frames with payloads of every short length, with both CRC implementations, over IPv4 and IPv6.
    #[test]
    fn both_crc_implementations_write_and_read_the_same() {
        let implementations: [ChooseCrc32; 2] = [choose_crc_32, queue_pair::choose_crc];
        let (v4, v6) = (
            |last| [10, 0, 0, last].into(),
            |last| std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]),
        );
        let mut random = 1_u64;
        for path in [Path::new(v4(1), v4(2), 0xc123), Path::new(v6(1), v6(2), 0xc123)] {
            let mut writers =
                implementations.map(|crc| Writer::new(path, Transport::Uc, 7).unwrap().with_crc(crc));
            let mut known = implementations.map(HeaderTemplates::with_crc);
            for len in (0..=200_usize).chain([511, 512, 1000, 4096]) {
                let payload: Vec<u8> = (0..len)
                    .map(|_| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 56) as u8
                    })
                    .collect();
                let reth = Reth {
                    address: random,
                    rkey: len as u32,
                    len: len as u32,
                };
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
                    assert_eq!(
                        (brief.payload, brief.reth, brief.psn),
                        (&payload[..], reth, packet.bth.psn)
                    );
                    // The ICRC detects a flipped bit after the headers.
                    let mut changed = frames[0].clone();
                    let bit = random as usize % (8 * (len.next_multiple_of(4) + 24));
                    let offset = changed.len() - 1 - bit / 8;
                    changed[offset] ^= 1 << (bit % 8);
                    assert_eq!(known.read(&changed), None, "{len}, bit {bit}");
                }
            }
        }
    }
}
