//! The fast path for SF-INT: within a run of consecutive 2.0 reports in a burst, the common SF-INT reports are decoded first
//! and then joined, so that the memory of one is prefetched while others are decoded. Any other report is decoded in full. The
//! order of arrival is preserved.

use wire::{Decoder, Single};

use super::{Inner, NEAR};
use crate::config::Units;
use crate::decode::{Datagram, DatagramContext, StreamSeq, version};
use crate::event::Output;
use crate::join::SfBurst;
use crate::stream;

/// Returns true if the version field says Report 2.0.
#[inline]
fn is_report_20(datagram: &Datagram<'_>) -> bool {
    datagram.payload.first().is_some_and(|first| first >> 4 == 2)
}

impl Inner {
    /// Handles the 2.0 reports at the start of `burst`, and returns the number of their datagrams.
    #[inline(never)]
    pub(super) fn handle_run(
        &mut self,
        burst: &[Datagram<'_>],
        readers: &mut [(Decoder, Units)],
        out: &mut dyn Output,
    ) -> usize {
        // If nodes have units of their own, records must be read one at a time.
        if !burst.first().is_some_and(is_report_20) || !self.node_units.is_empty() {
            return 0;
        }
        let mut pending = SfBurst::new();
        let mut handled = 0;
        for (at, datagram) in burst
            .iter()
            .enumerate()
            .take_while(|(_, datagram)| is_report_20(datagram))
        {
            if let Some(later) = burst.get(at + NEAR) {
                for line in [0, 64, 128] {
                    later.payload.get(line).map(memory::prefetch);
                }
            }
            let mut received = datagram.received;
            if self.leaves_second(received) {
                self.join_all(&mut pending, out);
                received = self.advance(received, out);
            }
            let (envelope, reader) = self.open(datagram, received, readers);
            if self.restricted && !self.admits(&{ envelope }, datagram.payload, reader) {
                handled += 1;
                continue;
            }
            if let Some(single) = reader.single(datagram.payload) {
                self.single(&envelope, &single, &mut pending, out);
            } else {
                // Join the pending reports first, to keep the order of arrival.
                self.join_all(&mut pending, out);
                self.datagram(&{ envelope }, datagram.payload, reader, out);
            }
            handled += 1;
        }
        self.join_all(&mut pending, out);
        handled
    }

    /// Adds a common SF-INT report to the burst.
    #[inline(always)]
    fn single<'a>(
        &mut self,
        envelope: &DatagramContext<'_>,
        single: &Single<'a>,
        burst: &mut SfBurst<'a>,
        out: &mut dyn Output,
    ) {
        let shape = single.shape | u64::from(envelope.sender.profile) << 56;
        let plans = match self.sf.find_plans(shape) {
            Some(plans) => plans,
            None => {
                // New plans may evict some that pending reports still need.
                self.join_all(burst, out);
                self.sf.add_plans(shape, single, *envelope.units)
            }
        };
        let stream = stream::pack(
            version(wire::Version::V20),
            single.hw_id,
            envelope.listener,
            single.node_id,
        );
        if !self
            .losses
            .observe_latest(stream, single.seq, envelope.received, out)
        {
            self.losses.observe(
                &StreamSeq::from(single).stream(envelope),
                single.seq,
                envelope.received,
                out,
            );
        }
        if self.sf.push(burst, envelope, single, plans, &self.state) {
            self.join_all(burst, out);
        }
    }

    /// Joins all pending reports.
    #[inline(never)]
    fn join_all(&mut self, burst: &mut SfBurst<'_>, out: &mut dyn Output) {
        let count = burst.len() as u64;
        if count == 0 {
            return;
        }
        self.stats.reports += count;
        self.stats.accepted += count;
        self.sf.apply_burst(burst, &mut self.state, out);
    }
}
