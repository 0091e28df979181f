//! The six metrics that the collector derives from INT reports (INTCollector paper, Table 2).

use std::fmt;

wire::named! {
    /// A measured quantity. Each description starts with the key of its values.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    pub enum Metric, name {
        /// 5-tuple: the nodes in forwarding order. Its numeric value is the number of hops.
        FlowPath = 0 => "flow_path",
        /// 5-tuple: time from the first node's ingress to the last node's egress, ns.
        FlowLatency = 1 => "flow_latency",
        /// 5-tuple and node: time inside the node, ns.
        HopLatency = 2 => "hop_latency",
        /// Node and queue: occupancy, device units.
        QueueOccupancy = 3 => "queue_occupancy",
        /// Node and queue: congestion status (INT 0.5) or occupancy of the shared buffer (2.x), device units.
        QueueCongestion = 4 => "queue_congestion",
        /// Node and egress interface: utilization, device units (scaled to a fraction of 1 by the profile).
        LinkUtilization = 5 => "link_utilization",
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
