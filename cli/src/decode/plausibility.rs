//! Checks hop latencies for plausibility with the profile of the node or, if it has none, of the report's source; and names the
//! drop reasons of that source.

use collector::Profile;
use detect::Prefix;
use wire::Hop;

/// Profiles of a configuration.
#[derive(Debug)]
pub(super) struct PlausibilityCheck {
    pub(super) default: Profile,
    pub(super) by_source: Vec<(Prefix, Profile)>,
    pub(super) nodes: Vec<(u32, Profile)>,
}

/// Profiles that apply to the reports of one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourcePlausibility<'a> {
    profile: &'a Profile,
    nodes: &'a [(u32, Profile)],
}

impl PlausibilityCheck {
    /// Returns the profiles for reports from `source`, by the longest prefix that contains it.
    pub(super) fn for_source(&self, source: &[u8; 16]) -> SourcePlausibility<'_> {
        let source_profile = self
            .by_source
            .iter()
            .filter(|(prefix, _)| prefix.contains_octets(source));
        let source_profile = source_profile.max_by_key(|(prefix, _)| prefix.len());
        SourcePlausibility {
            profile: source_profile.map_or(&self.default, |(_, profile)| profile),
            nodes: &self.nodes,
        }
    }

    /// Returns the profiles for data packets, which have no report source.
    pub(super) fn for_packets(&self) -> SourcePlausibility<'_> {
        SourcePlausibility {
            profile: &self.default,
            nodes: &self.nodes,
        }
    }
}

impl SourcePlausibility<'_> {
    /// Formats a drop reason of the source: its name and its code, or the code alone.
    pub(super) fn drop_reason(&self, code: u8) -> String {
        match self.profile.drop_reasons.get(&code) {
            Some(name) => format!("{name} ({code})"),
            None => code.to_string(),
        }
    }

    /// Returns the hop latency in ns if it is implausible, otherwise `None`.
    pub(super) fn implausible(&self, hop: &Hop) -> Option<u64> {
        let node_profile = self.nodes.iter().find(|(node, _)| hop.node_id == Some(*node));
        collector::implausible_latency(hop, node_profile.map_or(self.profile, |(_, profile)| profile))
    }
}
