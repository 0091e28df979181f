//! Watchlist of a switch: which flows it measures, and by which method.

use detect::Match;
use settings::choice;
use wire::FlowKey;

choice! {
    /// The method by which a switch measures a watched flow.
    #[derive(Hash)]
    pub enum Mode("\"md\", \"md10\", \"mx\", \"sf\" or \"postcard\"") {
        /// INT-MD 2.1: the packet collects the records, and the sink reports them.
        Md21 = "md",
        /// INT-MD 1.0: the packet collects the records, and the sink reports them.
        Md10 = "md10",
        /// SF-INT: packets have a constant size, and each carries one node's record; the collector joins the paths. INT is in
        /// the hop-by-hop header over IPv6, and after L4 over IPv4. The bitmap needs bit 0, and cannot have bit 15.
        Sf = "sf",
        /// INT-MX 2.1: the packet carries the instructions, and every node reports its own record.
        Mx21 = "mx",
        /// Postcards: the packet is unchanged, and every node that watches the flow sends a postcard.
        Postcard = "postcard",
    }
}

/// An entry of a watchlist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watch {
    /// The flows to which the entry applies.
    pub flows: Match,
    /// Method by which the flows are measured.
    pub mode: Mode,
    /// Instruction bitmap; bit 0 is the most significant (wire-formats 1.4). Paths require bit 0, the node id.
    pub bitmap: u16,
    /// Maximum number of records: the Remaining Hop Count at the source.
    pub hops: u8,
    /// Sampling rate: one packet in this many is measured; 0 and 1 measure all. See [`crate::sampling`].
    pub sample: u32,
    /// Whether every switch reports the packets of these flows that it drops.
    pub drops: bool,
}

/// Watches all flows; see [`Watch::new`].
impl Default for Watch {
    fn default() -> Self {
        Self::new(Match::default())
    }
}

impl Watch {
    /// Returns an entry that measures `flows` by INT-MD 2.1, with node id, interfaces, hop latency, queue, both timestamps and
    /// utilization, for up to 16 nodes, and with drop reports.
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

    /// Usual bitmap: node id, level-1 interfaces, hop latency, queue, ingress and egress timestamp, and utilization.
    pub const USUAL: u16 = 0xfd00;
}

/// The watched flows. The first matching entry decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watchlist {
    entries: Vec<Watch>,
}

impl Watchlist {
    /// Creates a watchlist from entries in order of precedence.
    pub fn new(entries: Vec<Watch>) -> Self {
        Self { entries }
    }

    /// Returns the entry for `flow`, or `None` if the flow is not watched.
    pub fn find(&self, flow: &FlowKey) -> Option<&Watch> {
        self.entries.iter().find(|watch| watch.flows.matches(flow))
    }

    /// Returns the index of the entry for `flow`, or `None` if the flow is not watched.
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
    /// The role of a switch for a flow, independent of a packet's ports.
    #[derive(Hash)]
    pub enum Role("\"source\", \"transit\", \"sink\", \"source_and_sink\" or \"off\"") {
        /// The switch inserts INT, and does not remove it.
        Source = "source",
        /// The switch adds its record to INT, and neither inserts nor removes INT.
        Transit = "transit",
        /// The switch reports and removes INT.
        Sink = "sink",
        /// The switch is both source and sink.
        SourceAndSink = "source_and_sink",
        /// The switch ignores the flow and forwards packets with INT unchanged.
        Off = "off",
    }
}

/// Roles by flow. The first matching entry decides; other flows get their role from the ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roles {
    entries: Vec<(Match, Role)>,
}

impl Roles {
    /// Creates a list of roles from entries in order of precedence.
    pub fn new(entries: Vec<(Match, Role)>) -> Self {
        Self { entries }
    }

    /// Returns the role for `flow`, or `None` if the ports decide.
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
