//! Suggests a dialect (`--profile`) for datagrams that were refused: with the wrong profile, nearly all are refused.

use terminal::units;
use wire::report::Decoder;
use wire::{Dialect, Profile};

/// Maximum number of refused datagrams that are tried.
const MAX_ATTEMPTS: u64 = 1000;

/// Counts the refused datagrams that each dialect can parse, with the telemetry ports of the current profile.
#[derive(Default, Debug)]
pub(super) struct ProfileHint {
    attempts: u64,
    readable: [u64; Dialect::ALL.len()],
}

impl ProfileHint {
    /// Tries all dialects on a datagram of which no report was accepted.
    pub(super) fn try_others(&mut self, payload: &[u8], current: &Profile) {
        if self.attempts == MAX_ATTEMPTS {
            return;
        }
        self.attempts += 1;
        for (readable, dialect) in self.readable.iter_mut().zip(Dialect::ALL) {
            let profile = Profile {
                telemetry_ports: current.telemetry_ports,
                ..Profile::new(dialect)
            };
            let is_readable = Decoder::new(profile)
                .reports(payload)
                .all(|report| report.is_ok());
            *readable += u64::from(is_readable);
        }
    }

    /// Formats a line that names the dialect which reads most of the refused datagrams. Empty if none reads at least half.
    pub(super) fn text(&self) -> String {
        let best = self
            .readable
            .iter()
            .zip(Dialect::ALL)
            .rev()
            .max_by_key(|(readable, _)| **readable);
        let Some((readable, dialect)) =
            best.filter(|(readable, _)| **readable > 0 && **readable * 2 >= self.attempts)
        else {
            return String::new();
        };
        format!(
            "`--profile {}` reads {} of {}\n",
            dialect.name(),
            units::count(*readable),
            units::counted(self.attempts, "refused datagram")
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
        for _ in 0..2 * MAX_ATTEMPTS {
            hint.try_others(bytes, &strict);
        }
        assert_eq!(
            hint.text(),
            "`--profile hostint` reads 999 of 1,000 refused datagrams\n"
        );
    }
}
