//! Index of flows by Flow ID: the flows in the table, and those that the configuration names.
//!
//! The ID of a flow is the CRC-32C of its 5-tuple (wire-formats 4.1) unless the configuration names it. If two flows
//! have the same ID, the ID is ambiguous until one of them has expired.

use wire::FlowKey;

use crate::hash::fold;

const FREE: Entry = Entry {
    id: 0,
    slots: 0,
    flows: 0,
};

/// Result of a look-up by Flow ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    /// No known flow has the ID.
    Unknown,
    /// One flow has the ID, in this slot.
    Slot(u32),
    /// Several flows have the ID.
    Ambiguous,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    id: u32,
    /// XOR of the flows' slots, so that it is the slot itself when one flow is left.
    slots: u32,
    /// Number of flows with this ID; 0 marks a free entry.
    flows: u32,
}

/// Flow IDs of the flows in the table: a hash table with open addressing, at most half full. Empty until the first look-up.
#[derive(Debug)]
pub(crate) struct Directory {
    entries: Vec<Entry>,
    size: usize,
    seed: u64,
    /// (Flow ID, flow) from the configuration, sorted.
    named: Vec<(u32, FlowKey)>,
}

impl Directory {
    pub(crate) fn for_flows(flows: usize, seed: u64, named: &[(u32, FlowKey)]) -> Self {
        let size = (flows.max(1) * 2).next_power_of_two();
        let mut named = named.to_vec();
        named.sort_unstable();
        Self {
            entries: Vec::with_capacity(size),
            size,
            seed,
            named,
        }
    }

    /// Returns true once flows are indexed.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Starts indexing. The memory is already reserved.
    pub(crate) fn begin(&mut self) {
        self.entries.resize(self.size, FREE);
    }

    /// Adds a flow of the table, if flows are indexed.
    pub(crate) fn enter(&mut self, key: &FlowKey, slot: u32) {
        if self.is_in_use() && key.known_id().is_none() {
            self.add(key.flow_id(), slot);
        }
    }

    /// Removes a flow that left `slot` of the table.
    pub(crate) fn leave(&mut self, key: &FlowKey, slot: u32) {
        if self.is_in_use() && key.known_id().is_none() {
            self.remove(key.flow_id(), slot);
        }
    }

    /// Returns the flow to which the configuration assigns this ID.
    #[inline]
    pub(crate) fn named(&self, id: u32) -> Option<&FlowKey> {
        if self.named.is_empty() {
            return None;
        }
        let at = self.named.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.named.get(at).map(|(_, key)| key)
    }

    fn place(&self, id: u32) -> usize {
        fold(self.seed, u64::from(id) | 1 << 32) as usize & (self.size - 1)
    }

    /// Returns the position of the entry for `id`, or of the free entry where it belongs.
    fn seek(&self, id: u32) -> usize {
        let mut at = self.place(id);
        while self.entries[at].flows != 0 && self.entries[at].id != id {
            at = (at + 1) & (self.size - 1);
        }
        at
    }

    pub(crate) fn add(&mut self, id: u32, slot: u32) {
        let at = self.seek(id);
        let entry = &mut self.entries[at];
        *entry = Entry {
            id,
            slots: entry.slots ^ slot,
            flows: entry.flows + 1,
        };
    }

    pub(crate) fn find(&self, id: u32) -> Resolved {
        match self.entries[self.seek(id)] {
            Entry { flows: 0, .. } => Resolved::Unknown,
            Entry { flows: 1, slots, .. } => Resolved::Slot(slots),
            _ => Resolved::Ambiguous,
        }
    }

    /// Removes the flow in `slot`, which has this ID.
    pub(crate) fn remove(&mut self, id: u32, slot: u32) {
        let mut hole = self.seek(id);
        let entry = &mut self.entries[hole];
        match entry.flows {
            0 => return,
            1 => {}
            _ => {
                entry.flows -= 1;
                entry.slots ^= slot;
                return;
            }
        }
        // Backward-shift deletion: entries after the hole move closer to their home positions.
        let mut at = hole;
        loop {
            at = (at + 1) & (self.size - 1);
            let entry = self.entries[at];
            if entry.flows == 0 {
                break;
            }
            let home = self.place(entry.id);
            if (at.wrapping_sub(home) & (self.size - 1)) >= (at.wrapping_sub(hole) & (self.size - 1)) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_several_flows_is_ambiguous_until_one_is_left() {
        let mut directory = Directory::for_flows(4, 1, &[]);
        directory.begin();
        assert_eq!(directory.find(7), Resolved::Unknown);
        directory.add(7, 0);
        directory.add(8, 1);
        assert_eq!(directory.find(7), Resolved::Slot(0));
        directory.add(7, 2);
        assert_eq!(directory.find(7), Resolved::Ambiguous);
        directory.add(7, 3);
        directory.remove(7, 0);
        assert_eq!(
            (directory.find(7), directory.find(8)),
            (Resolved::Ambiguous, Resolved::Slot(1))
        );
        directory.remove(7, 3);
        assert_eq!(directory.find(7), Resolved::Slot(2));
        directory.remove(7, 2);
        assert_eq!(directory.find(7), Resolved::Unknown);
        directory.add(7, 3);
        assert_eq!(directory.find(7), Resolved::Slot(3));
    }

    #[test]
    fn removal_keeps_other_entries_reachable() {
        let mut directory = Directory::for_flows(64, 3, &[]);
        directory.begin();
        let id = |n: u32| n.wrapping_mul(0x9e37_79b1);
        let mut present = [false; 64];
        for round in 0..5000_u32 {
            let slot = round.wrapping_mul(0x85eb_ca6b) >> 26;
            if std::mem::replace(&mut present[slot as usize], round % 3 != 0) {
                directory.remove(id(slot), slot);
            }
            if present[slot as usize] {
                directory.add(id(slot), slot);
            }
            for (slot, present) in (0..).zip(present) {
                let expected = if present {
                    Resolved::Slot(slot)
                } else {
                    Resolved::Unknown
                };
                assert_eq!(directory.find(id(slot)), expected, "round {round}, slot {slot}");
            }
        }
    }
}
