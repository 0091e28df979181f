//! The watchlist of a switch: the flows that it measures, and how.

use detect::Match;
use settings::choice;
use wire::FlowKey;

choice! {
    /// The method by which a watched flow is measured.
    #[derive(Hash)]
    pub enum Mode("\"md\", \"md10\", \"mx\", \"sf\" or \"postcard\"") {
        /// INT-MD 2.1: the packet collects the records, the sink reports them.
        Md21 = "md",
        /// INT 1.0: the packet collects the records, the sink reports them.
        Md10 = "md10",
        /// SF-INT: packets have a constant size, and each carries one node's record; the collector joins the paths. Over IPv6 in the
        /// hop-by-hop header, over IPv4 after L4. The bitmap needs bit 0, and cannot have bit 15.
        Sf = "sf",
        /// INT-MX 2.1: the packet carries the instructions, every node reports its own record.
        Mx21 = "mx",
        /// The packet is not changed; every node that watches the flow sends a postcard.
        Postcard = "postcard",
    }
}

/// An entry of a watchlist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    /// The flows to which the entry applies.
    pub flows: Match,
    /// The method by which they are measured.
    pub mode: Mode,
    /// Instruction bitmap, bit 0 the most significant (wire-formats 1.4). Bit 0, the node id, is required for paths.
    pub bitmap: u16,
    /// Maximum number of records (Remaining Hop Count at the source).
    pub hops: u8,
    /// One packet of this many is measured; 0 and 1 measure all. See [`crate::sampling`].
    pub sample: u32,
    /// Every switch reports packets of these flows that it drops.
    pub drops: bool,
}

/// Watches all flows; see [`Watch::new`].
impl Default for Watch {
    fn default() -> Self {
        Self::new(Match::default())
    }
}

impl Watch {
    /// Watches `flows` by INT-MD 2.1 with node id, interfaces, hop latency, queue, both timestamps and utilization, up to
    /// 16 nodes, drops included.
    pub fn new(flows: Match) -> Self {
        Self {
            flows,
            mode: Mode::Md21,
            bitmap: Self::USUAL,
            hops: 16,
            sample: 1,
            drops: true,
        }
    }

    /// Node id, level-1 interfaces, hop latency, queue, ingress and egress timestamp, utilization.
    pub const USUAL: u16 = 0xfd00;
}

/// The watched flows. The first entry that matches decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watchlist {
    entries: Vec<Watch>,
}

impl Watchlist {
    /// Returns a list in order of precedence.
    pub fn new(entries: Vec<Watch>) -> Self {
        Self { entries }
    }

    /// Returns the entry for `flow`; `None` if it is not watched.
    pub fn find(&self, flow: &FlowKey) -> Option<&Watch> {
        self.entries.iter().find(|watch| watch.flows.matches(flow))
    }

    /// Returns the index of the entry for `flow`; `None` if it is not watched.
    #[inline]
    pub fn position(&self, flow: &FlowKey) -> Option<usize> {
        self.entries.iter().position(|watch| watch.flows.matches(flow))
    }

    /// Returns the entries in order of precedence.
    pub fn entries(&self) -> &[Watch] {
        &self.entries
    }
}

impl From<Watch> for Watchlist {
    fn from(watch: Watch) -> Self {
        Self::new(vec![watch])
    }
}

choice! {
    /// The role of a switch for a flow, regardless of a packet's ports.
    #[derive(Hash)]
    pub enum Role("\"source\", \"transit\", \"sink\", \"source_and_sink\" or \"off\"") {
        /// It inserts INT, and does not remove it.
        Source = "source",
        /// It adds its record to INT; it neither inserts nor removes INT.
        Transit = "transit",
        /// It reports and removes INT.
        Sink = "sink",
        /// It is both source and sink.
        SourceAndSink = "source_and_sink",
        /// It ignores the flow: packets with INT are forwarded unchanged.
        Off = "off",
    }
}

/// Roles of flows. The first entry that matches decides; other flows get their role from the ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roles {
    entries: Vec<(Match, Role)>,
}

impl Roles {
    /// Returns a list in order of precedence.
    pub fn new(entries: Vec<(Match, Role)>) -> Self {
        Self { entries }
    }

    /// Returns the role for `flow`; `None` if the ports decide.
    #[inline]
    pub fn find(&self, flow: &FlowKey) -> Option<Role> {
        self.entries
            .iter()
            .find(|(flows, _)| flows.matches(flow))
            .map(|(_, role)| *role)
    }

    /// Returns the entries in order of precedence.
    pub fn entries(&self) -> &[(Match, Role)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        let to = |prefix: &str| Match {
            dst: Some(prefix.parse().unwrap()),
            ..Match::default()
        };
        let narrow = Watch {
            mode: Mode::Postcard,
            ..Watch::new(to("10.1.2.0/24"))
        };
        let wide = Watch::new(to("10.0.0.0/8"));
        let list = Watchlist::new(vec![narrow, wide]);
        let flow = |dst| FlowKey::v4([192, 0, 2, 1], dst, Some((1, 2)), 17);
        assert_eq!(list.find(&flow([10, 1, 2, 9])), Some(&narrow));
        assert_eq!(list.find(&flow([10, 1, 3, 9])), Some(&wide));
        assert_eq!(list.find(&flow([11, 1, 3, 9])), None);
        assert_eq!(
            [[10, 1, 2, 9], [10, 1, 3, 9], [11, 1, 3, 9]].map(|dst| list.position(&flow(dst))),
            [Some(0), Some(1), None]
        );
    }
}
