//! Counters of a router. They add up: see [`Stats`].

use serde::{Deserialize, Serialize};

wire::named! {
    /// The reason for which a frame was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Drop, name {
        /// Inconsistent headers, a wrong IPv4 header checksum, or a truncated frame.
        Malformed => "malformed",
        /// Neither IPv4 nor IPv6 (nor ARP from a host).
        NotIp => "not_ip",
        /// On an edge port, to another hardware address than that of the port.
        NotForUs => "not_for_us",
        /// To or from an address that is never forwarded: multicast, broadcast, link-local, loopback.
        LinkScope => "link_scope",
        /// The hop limit (TTL) expired.
        HopLimit => "ttl_zero",
        /// There is no route to the destination.
        NoRoute => "no_route",
        /// Longer than the MTU of the egress link.
        TooBig => "too_big",
        /// The next hop does not reply to address resolution.
        Unresolved => "neighbour_unresolved",
        /// The egress queue was full.
        QueueFull => "queue_full",
        /// The queue of its ingress link was full.
        QueueFullIn => "queue_full_in",
        /// Lost on the egress link, as configured.
        LinkLoss => "link_loss",
        /// Lost on its ingress link, as configured.
        LinkLossIn => "link_loss_in",
        /// The link is down.
        LinkDown => "link_down",
        /// Too many frames are queued.
        Memory => "memory",
        /// The operating system did not accept it.
        NotSent => "not_sent",
        /// A fragment to an intercepted destination.
        InterceptFragment => "intercept_fragment",
        /// To an intercepted destination, with a wrong UDP length or checksum, or with IPv6 extension headers.
        InterceptMalformed => "intercept_malformed",
        /// The consumer of intercepted datagrams was full.
        InterceptQueueFull => "intercept_queue_full",
    }
}

impl Drop {
    /// Returns the drop reason in reports, equal to that of [`crate::fabric::DropReason`] if both have it. `None`: a switch cannot detect
    /// it or does not report it.
    pub fn code(self) -> Option<u8> {
        match self {
            Self::HopLimit => Some(26),
            Self::NoRoute => Some(29),
            Self::QueueFull => Some(71),
            Self::LinkDown => Some(128),
            Self::TooBig => Some(129),
            Self::Unresolved => Some(130),
            _ => None,
        }
    }

    /// Returns whether the drop occurs at the egress port, which is then known.
    pub(super) fn is_egress(self) -> bool {
        matches!(
            self,
            Self::TooBig | Self::Unresolved | Self::QueueFull | Self::LinkDown
        )
    }
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames that arrived at the router.
    pub received: u64,
    /// Bytes of the frames that arrived.
    pub received_bytes: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Bytes of the frames that were sent.
    pub sent_bytes: u64,
    /// Frames dropped, by [`Drop`], at the port that caused it.
    pub drops: [u64; Drop::COUNT],
}

/// State of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SwitchQueue"))]
pub struct QueueStats {
    /// Bytes in the queue now.
    pub bytes: u32,
    /// Frames in the queue now.
    pub frames: u32,
    /// Largest number of bytes that were queued.
    pub max_bytes: u32,
}

/// Counters since the router was created. Summed over the ports: `received + originated = sent + consumed + drops + queued`,
/// where queued is [`Router::queued`](super::Router::queued).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters of each port, by its index.
    pub ports: Vec<PortStats>,
    /// Frames originated here: ARP, neighbour discovery, ICMP errors, replies, and those of the caller.
    pub originated: u64,
    /// Frames consumed here: ARP, neighbour discovery, packets sent for measurement only, intercepted datagrams, and those
    /// that the caller consumed.
    pub consumed: u64,
    /// Consumed datagrams that were passed to [`Wires::deliver`](super::Wires::deliver).
    pub intercepted: u64,
    /// Frames with VLAN tags to intercepted destinations, which are forwarded.
    pub intercept_tagged: u64,
    /// Originated replies of intercepted destinations.
    pub replies: u64,
    /// Replies without a route, or that are too long; not part of the originated frames.
    pub replies_refused: u64,
    /// ICMP errors not sent, because of their rate limit.
    pub errors_suppressed: u64,
}

impl Stats {
    pub(super) fn new(ports: usize) -> Self {
        Self {
            ports: vec![PortStats::default(); ports],
            ..Self::default()
        }
    }

    /// Returns the number of received frames.
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.received).sum()
    }

    /// Returns the number of sent frames.
    pub fn sent(&self) -> u64 {
        self.ports.iter().map(|port| port.sent).sum()
    }

    /// Frames dropped for one reason.
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.ports.iter().map(|port| port.drops[reason as usize]).sum()
    }

    /// Returns the number of dropped frames.
    pub fn drops(&self) -> u64 {
        self.ports.iter().flat_map(|port| &port.drops).sum()
    }

    /// Returns whether the counters balance with `queued` frames in the router.
    pub fn is_balanced(&self, queued: u64) -> bool {
        self.received() + self.originated == self.sent() + self.consumed + self.drops() + queued
    }
}
