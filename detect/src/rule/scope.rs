//! Rule scopes: limits rules to some flows. A flow is matched once when it is new, and the caller stores the rules that
//! apply.

use std::fmt;

use wire::FlowKey;

use super::{MAX_RULES, RuleSet};
use crate::threshold::Match;

/// Maximum number of matches in a rule set. A new flow is compared with each.
pub const MAX_MATCHES: usize = 1024;

/// A rule set has this many matches, more than [`MAX_MATCHES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyMatches(pub usize);

impl fmt::Display for TooManyMatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0;
        write!(
            f,
            "the rules name {count} combinations of flows; at most {MAX_MATCHES} are possible: use wider prefixes, or fewer rules"
        )
    }
}

impl std::error::Error for TooManyMatches {}

/// The flows to which rules apply.
#[derive(Clone, Debug)]
pub(super) struct Scopes {
    /// Bit `i` is set if rule `i` applies to every flow.
    everywhere: u64,
    /// Matches with the rules that they select (as bits).
    limited: Vec<(Match, u64)>,
}

impl Default for Scopes {
    fn default() -> Self {
        Self {
            everywhere: u64::MAX,
            limited: Vec::new(),
        }
    }
}

impl RuleSet {
    /// Limits rules to some flows: rule `i` applies to flows that one of the matches given with `i` matches. Other rules
    /// apply to all.
    ///
    /// # Errors
    /// [`TooManyMatches`] if there are more than [`MAX_MATCHES`].
    pub fn limited_to(mut self, flows: &[(usize, Vec<Match>)]) -> Result<Self, TooManyMatches> {
        let count = flows.iter().map(|(_, matches)| matches.len()).sum();
        if count > MAX_MATCHES {
            return Err(TooManyMatches(count));
        }
        if flows.is_empty() {
            return Ok(self);
        }
        let existing = 1_u64
            .checked_shl(self.len() as u32)
            .map_or(u64::MAX, |above| above - 1);
        let mut scopes = Scopes {
            everywhere: existing,
            limited: Vec::new(),
        };
        for (rule, matches) in flows.iter().filter(|(rule, _)| *rule < MAX_RULES) {
            let bit = 1 << rule;
            scopes.everywhere &= !bit;
            for one in matches {
                match scopes.limited.iter_mut().find(|(known, _)| known == one) {
                    Some((_, rules)) => *rules |= bit,
                    None => scopes.limited.push((*one, bit)),
                }
            }
        }
        self.scopes = scopes;
        Ok(self)
    }

    /// Returns whether any rule is limited to some flows.
    #[inline(always)]
    pub fn is_limited(&self) -> bool {
        self.scopes.everywhere != u64::MAX
    }

    /// Returns the rules that apply to a flow: bit `i` is rule `i`. Compares the flow with every match (a few ns each), so
    /// call it when a flow is new or the rules have changed, not per report.
    pub fn applicable(&self, flow: &FlowKey) -> u64 {
        let Scopes { everywhere, limited } = &self.scopes;
        let matching = limited.iter().filter(|(flows, _)| flows.matches(flow));
        matching.fold(*everywhere, |rules, (_, more)| rules | more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(count: usize) -> RuleSet {
        let rules: Vec<_> = (0..count)
            .map(|n| (format!("r{n}"), format!("hops > {n}")))
            .collect();
        RuleSet::compile(&rules).unwrap()
    }

    #[test]
    fn a_rule_applies_to_its_flows() {
        let to = |prefix: &str| Match {
            dst: Some(prefix.parse().unwrap()),
            ..Match::default()
        };
        let flow = |text: &str| text.parse::<FlowKey>().unwrap();
        assert!(!rules(3).is_limited());
        assert_eq!(rules(3).applicable(&flow("10.0.0.1:1>10.0.0.2:2/6")), u64::MAX);
        let limited = vec![
            (1, vec![to("10.1.0.0/16"), to("10.2.0.0/16")]),
            (2, vec![to("10.2.0.0/16")]),
        ];
        let set = rules(3).limited_to(&limited).unwrap();
        assert!(set.is_limited());
        let of = |text: &str| set.applicable(&flow(text));
        assert_eq!(of("10.0.0.1:1>10.1.0.2:2/6"), 0b011);
        assert_eq!(of("10.0.0.1:1>10.2.0.2:2/6"), 0b111);
        assert_eq!(of("10.1.0.1:1>10.0.0.2:2/6"), 0b001);
        // Two rules limited to the same flows share one scope.
        assert_eq!(set.scopes.limited.len(), 2);
    }

    #[test]
    fn matches_are_bounded() {
        let many = vec![(0, vec![Match::default(); MAX_MATCHES + 1])];
        let error = rules(1).limited_to(&many).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the rules name 1025 combinations of flows; at most 1024")
        );
    }
}
