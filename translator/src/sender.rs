//! Issues RDMA operations for one collector through the transport, and meters and counts them.

use super::meter::Meter;
use super::stats::{Operations, Reason};
use rdma::transport::{Blocked, RemoteAddr, Transport};

/// The reason why a report was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The transport has no credit at the moment; the report had no effect.
    Blocked,
    /// The report cannot be executed.
    Drop(Reason),
    /// Columns of the sketch are missing before these.
    ColumnGap {
        /// Number of the first missing column.
        first_missing: u32,
        /// A NACK is due.
        send_nack: bool,
    },
}

impl From<Blocked> for Fault {
    fn from(blocked: Blocked) -> Self {
        if blocked.is_transient() {
            Self::Blocked
        } else {
            Self::Drop(Reason::TransportRefused)
        }
    }
}

/// The path to one collector during the processing of a report.
#[derive(Debug)]
pub(super) struct Sender<'a, W> {
    pub(super) transport: &'a mut W,
    pub(super) collector: u8,
    pub(super) meter: &'a mut Meter,
    pub(super) stats: &'a mut Operations,
}

/// Remote location and options of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) region: u16,
    pub(super) offset: u64,
    pub(super) immediate: Option<u32>,
    pub(super) reliable: bool,
}

impl<W: Transport> Sender<'_, W> {
    /// Returns whether the transport accepts this many operations and bytes now.
    #[inline(always)]
    pub(super) fn has_credit(&self, messages: u32, bytes: u64, reliable: bool) -> bool {
        self.transport
            .has_credit(self.collector, messages, bytes, reliable)
    }

    #[inline(always)]
    pub(super) fn write(&mut self, target: Target, data: &[u8]) -> Result<(), Blocked> {
        let Target {
            region,
            offset,
            immediate,
            reliable,
        } = target;
        let place = RemoteAddr {
            collector: self.collector,
            region,
        };
        if let Err(blocked) = self.transport.write(place, offset, data, immediate, reliable) {
            return self.count_blocked(blocked);
        }
        self.meter.spend(data.len());
        self.stats.writes += 1;
        self.stats.bytes += data.len() as u64;
        self.stats.immediates += u64::from(immediate.is_some());
        self.stats.reliable += u64::from(reliable);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn add(
        &mut self,
        region: u16,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        let place = RemoteAddr {
            collector: self.collector,
            region,
        };
        if let Err(blocked) = self.transport.add(place, offset, delta, immediate) {
            return self.count_blocked(blocked);
        }
        self.meter.spend(8);
        self.stats.fetch_adds += 1;
        self.stats.bytes += 8;
        self.stats.immediates += u64::from(immediate.is_some());
        Ok(())
    }

    #[cold]
    fn count_blocked(&mut self, blocked: Blocked) -> Result<(), Blocked> {
        self.stats.blocked[blocked as usize] += 1;
        Err(blocked)
    }
}
