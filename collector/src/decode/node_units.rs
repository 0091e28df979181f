//! Units by node id: in a mixed network, nodes of one INT stack may use other units than the reporter.

use crate::config::{DistinctProfiles, Units};

/// The units of a node, and the index of its profile.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: u32,
    units: Units,
    profile: u8,
}

/// The nodes with units of their own; none in most networks.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeUnits {
    /// The entries, sorted by node ID.
    entries: Box<[Entry]>,
}

impl NodeUnits {
    pub(crate) fn new(profiles: &DistinctProfiles<'_>) -> Self {
        let mut entries: Vec<Entry> = profiles
            .nodes()
            .map(|(node, number)| Entry {
                node,
                units: Units::from(profiles.get(number)),
                profile: number,
            })
            .collect();
        entries.sort_by_key(|entry| entry.node);
        entries.dedup_by_key(|entry| entry.node);
        Self {
            entries: entries.into(),
        }
    }

    /// Returns true if no node has units of its own.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, node: u32) -> Option<&Entry> {
        let at = self
            .entries
            .binary_search_by_key(&node, |entry| entry.node)
            .ok()?;
        self.entries.get(at)
    }

    /// Returns the units of `node`, or else the reporter's.
    #[inline]
    pub(crate) fn of(&self, node: u32, reporter: Units) -> Units {
        if self.is_empty() {
            reporter
        } else {
            self.find(node).map_or(reporter, |entry| entry.units)
        }
    }

    /// Returns the profile index of `node`, or else the reporter's.
    #[inline]
    pub(crate) fn profile(&self, node: u32, reporter: u8) -> u8 {
        if self.is_empty() {
            reporter
        } else {
            self.find(node).map_or(reporter, |entry| entry.profile)
        }
    }
}
