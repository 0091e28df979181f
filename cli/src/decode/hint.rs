//! Suggests a dialect (`--profile`) for datagrams that were refused: with the wrong profile, nearly all are refused.

use terminal::units;
use wire::report::Decoder;
use wire::{Dialect, Profile};

/// Maximum number of refused datagrams that are tried.
const TRIED: u64 = 1000;

/// Counts the refused datagrams that each dialect can parse, with the telemetry ports of the current profile.
#[derive(Default, Debug)]
pub(super) struct ProfileHint {
    tried: u64,
    read: [u64; Dialect::ALL.len()],
}

impl ProfileHint {
    /// Tries all dialects on a datagram of which no report was accepted.
    pub(super) fn try_others(&mut self, payload: &[u8], current: &Profile) {
        if self.tried == TRIED {
            return;
        }
        self.tried += 1;
        for (read, dialect) in self.read.iter_mut().zip(Dialect::ALL) {
            let profile = Profile {
                telemetry_ports: current.telemetry_ports,
                ..Profile::new(dialect)
            };
            let is_read = Decoder::new(profile)
                .reports(payload)
                .all(|report| report.is_ok());
            *read += u64::from(is_read);
        }
    }

    /// Formats a line that names the dialect which reads most of the refused datagrams. Empty if none reads at least half.
    pub(super) fn text(&self) -> String {
        let best = self
            .read
            .iter()
            .zip(Dialect::ALL)
            .rev()
            .max_by_key(|(read, _)| **read);
        let Some((read, dialect)) = best.filter(|(read, _)| **read > 0 && **read * 2 >= self.tried) else {
            return String::new();
        };
        format!(
            "`--profile {}` reads {} of {}\n",
            dialect.name(),
            units::count(*read),
            units::counted(self.tried, "refused datagram")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_that_reads_most_of_the_refused_is_named() {
        let all = testkit::vectors::all();
        let refused = |name: &str| {
            all.iter()
                .find(|vector| vector.name == name)
                .unwrap()
                .bytes
                .clone()
        };
        let strict = Profile::default();
        let mut hint = ProfileHint::default();
        assert_eq!(hint.text(), "");
        hint.try_others(&refused("unknown_version_3"), &strict);
        assert_eq!(hint.text(), "", "no profile reads it");
        let hostint = all.iter().find(|vector| {
            vector.profile == Profile::new(Dialect::HostInt)
                && vector.kind == testkit::vectors::Kind::Payload
                && vector.expect.len() == 1
                && !vector.expect[0].contains("error")
                && Decoder::new(strict)
                    .reports(&vector.bytes)
                    .all(|report| report.is_err())
        });
        let bytes = &hostint.unwrap().bytes;
        for _ in 0..3 {
            hint.try_others(bytes, &strict);
        }
        assert_eq!(
            hint.text(),
            "`--profile hostint` reads 3 of 4 refused datagrams\n"
        );
        for _ in 0..2 * TRIED {
            hint.try_others(bytes, &strict);
        }
        assert_eq!(
            hint.text(),
            "`--profile hostint` reads 999 of 1,000 refused datagrams\n"
        );
    }
}
