//! Rate-limited log line about packets that leave the INT domain with a wrong L4 checksum.

use dataplane::switch::Stats;

/// Minimum interval between two lines, ns.
const INTERVAL: u64 = 60_000_000_000;

/// Progress of the logging.
#[derive(Debug, Default)]
pub(super) struct ChecksumLog {
    /// Wrong checksums already logged.
    logged: u64,
    /// Earliest time of the next line, ns.
    next: u64,
}

impl ChecksumLog {
    /// Logs a line if the sink found more wrong checksums and the last line is old enough.
    pub(super) fn check(&mut self, now: u64, node: u32, l4_checksum: &str, stats: &Stats) {
        let total = stats.checksums_wrong;
        let examined = stats.checksums_examined;
        if let Some(new) = self.due(now, total) {
            tracing::warn!(
                node,
                new,
                total,
                examined,
                l4_checksum,
                "packets leave the INT domain with a wrong L4 checksum, and hosts drop them; set [switch] l4_checksum to what the \
                 other nodes of the domain do"
            );
        }
    }

    /// Returns the number of wrong checksums since the last line, if a line is due.
    fn due(&mut self, now: u64, total: u64) -> Option<u64> {
        let new = total.saturating_sub(self.logged);
        if new == 0 || now < self.next {
            return None;
        }
        (self.logged, self.next) = (total, now.saturating_add(INTERVAL));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChecksumLog, INTERVAL};

    #[test]
    fn one_line_a_minute_counts_what_is_new() {
        let mut log = ChecksumLog::default();
        let start = 5_000_000_000;
        assert_eq!(log.due(start, 0), None);
        assert_eq!(log.due(start, 3), Some(3));
        assert_eq!(log.due(start + INTERVAL - 1, 8), None);
        assert_eq!(log.due(start + INTERVAL, 8), Some(5));
        assert_eq!(log.due(start + 2 * INTERVAL, 8), None);
        assert_eq!(log.due(start + 2 * INTERVAL + 1, 9), Some(1));
    }
}
