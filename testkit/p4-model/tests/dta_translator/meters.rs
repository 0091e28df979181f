//! Rates of collectors and of the sender, and what congestion causes.

use std::net::IpAddr;

use testkit::rng::Rng;
use translator::Rate;

use super::{COLLECTORS, SENDER, Target, insert};

/// The settings of both translators.
pub(crate) struct Limits {
    pub(crate) rates: [Rate; COLLECTORS as usize],
    /// Reports of a sender per second, 0: no limit; and at once.
    pub(crate) reports: u64,
    pub(crate) burst: u32,
    /// Microseconds that a notice holds.
    pub(crate) hold: u64,
    pub(crate) copies: [u8; 4],
}

impl Limits {
    /// Of two of three seeds: rates that a report for every three microseconds exceeds, those with pauses only now and then.
    pub(crate) fn of(seed: u64) -> Self {
        let rng = &mut Rng(!seed);
        let hold = 16 * (1 + rng.below(20) as u64);
        let mut limits = Self {
            rates: Default::default(),
            reports: 0,
            burst: 1,
            hold,
            copies: [4, 2, 1, 1],
        };
        if seed % 3 == 1 {
            return limits;
        }
        limits.copies = [[4, 2, 1, 1], [3, 2, 2, 1], [4, 4, 3, 2]][rng.below(3)];
        for rate in &mut limits.rates {
            let (messages, bytes) = (30_000 + rng.roll() % 170_000, 3_000_000 + rng.roll() % 20_000_000);
            *rate = [
                Rate {
                    messages,
                    bytes: 0,
                    burst: 20_000 + rng.roll() % 200_000,
                },
                Rate {
                    messages: 0,
                    bytes,
                    burst: 50_000 + rng.roll() % 200_000,
                },
                Rate {
                    messages,
                    bytes,
                    burst: 150_001,
                },
                Rate::UNLIMITED,
            ][rng.below(4)];
        }
        if rng.below(3) == 0 {
            (limits.reports, limits.burst) = (200_000 + rng.roll() % 200_000, 1 + rng.below(10) as u32);
        }
        limits
    }

    /// No limit but that of a sender: one report per millisecond, and `burst` at once.
    pub(crate) fn of_reports(burst: u32) -> Self {
        Self {
            reports: 1000,
            burst,
            ..Self::of(1)
        }
    }

    /// Whether congestion is possible.
    pub(crate) fn are_some(&self) -> bool {
        self.reports != 0 || self.rates.iter().any(|rate| rate.messages | rate.bytes != 0)
    }

    /// The entries for them.
    pub(crate) fn install(&self, p4: &mut Target) {
        // ns with 16 bits of fraction.
        let cost = |rate: u64| u128::from((1_000_000_000_u64 << 16).checked_div(rate).unwrap_or(0));
        for (collector, rate) in self
            .rates
            .iter()
            .enumerate()
            .filter(|(_, rate)| rate.messages | rate.bytes != 0)
        {
            let parameters = vec![
                cost(rate.messages),
                cost(rate.bytes),
                u128::from(rate.burst) << 16,
            ];
            insert(p4, "collector_rate", &[collector as u128], "meter_by", parameters);
        }
        let IpAddr::V4(address) = SENDER.ip() else {
            panic!("the sender has an IPv4 address")
        };
        insert(
            p4,
            "sender",
            &[address.to_bits().into()],
            "count_sender",
            vec![77],
        );
        let [a, b, c, _] = self.copies.map(u128::from);
        let burst = cost(self.reports) * u128::from(self.burst);
        let parameters = [cost(self.reports), burst, self.hold.into(), a, b, c];
        p4.model.set_default("limits", "limit_by", &parameters).unwrap();
        let words = parameters.map(|number| number.to_string()).join(" ");
        p4.commands
            .push_str(&format!("table_set_default limits limit_by {words}\n"));
    }
}

/// A collector's rate so low that time is of no account: its level is that of the operations so far, 32 at most. A notice holds for days.
pub(crate) fn install_timeless(p4: &mut Target) {
    insert(p4, "collector_rate", &[0], "meter_by", vec![1 << 56, 0, 1 << 61]);
    p4.model
        .set_default("limits", "limit_by", &[0, 0, 1 << 40, 4, 2, 1])
        .unwrap();
    p4.commands.push_str(&format!(
        "table_set_default limits limit_by 0 0 {} 4 2 1\n",
        1_u64 << 40
    ));
}
