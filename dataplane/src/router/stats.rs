//! Counters of a router, and the reasons for drops. The counters balance: see [`Stats`].

use serde::{Deserialize, Serialize};

wire::named! {
    /// The reason why a frame was dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Drop, name {
        /// Inconsistent headers, a wrong IPv4 header checksum, or a truncated frame.
        Malformed => "malformed",
        /// Neither IPv4 nor IPv6 (nor ARP from a host).
        NotIp => "not_ip",
        /// An edge port received it for a MAC address other than its own.
        NotForUs => "not_for_us",
        /// Source or destination is never forwarded: multicast, broadcast, link-local, loopback.
        LinkScope => "link_scope",
        /// The TTL or hop limit expired.
        HopLimit => "ttl_zero",
        /// There is no route to the destination.
        NoRoute => "no_route",
        /// Longer than the MTU of the egress link.
        TooBig => "too_big",
        /// The next hop did not reply to address resolution.
        Unresolved => "neighbour_unresolved",
        /// The egress queue was full.
        QueueFull => "queue_full",
        /// The queue of the ingress link was full.
        QueueFullIn => "queue_full_in",
        /// Lost on the egress link, by the configured loss.
        LinkLoss => "link_loss",
        /// Lost on the ingress link, by the configured loss.
        LinkLossIn => "link_loss_in",
        /// The link is down.
        LinkDown => "link_down",
        /// Too many frames were queued in the router.
        Memory => "memory",
        /// The operating system did not accept the frame for sending.
        NotSent => "not_sent",
        /// A fragment for an intercepted destination.
        InterceptFragment => "intercept_fragment",
        /// A datagram for an intercepted destination had a wrong UDP length or checksum, or IPv6 extension headers.
        InterceptMalformed => "intercept_malformed",
        /// The consumer of intercepted datagrams had no space.
        InterceptQueueFull => "intercept_queue_full",
    }
}

impl Drop {
    /// Returns the drop reason code for reports, the same as in [`crate::fabric::DropReason`] where both have it. Returns
    /// `None` if a switch cannot detect the drop or does not report it.
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

    /// Returns whether the drop occurs at the egress port, so that this port is known.
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
    /// Frames that the router received.
    pub received: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Bytes of the sent frames.
    pub sent_bytes: u64,
    /// Dropped frames by [`Drop`], counted at the port that caused the drop.
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

/// Counters since the router was created. Summed over the ports, `received + originated = sent + consumed + drops + queued`,
/// where `queued` is [`Router::queued`](super::Router::queued).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters per port, by port index.
    pub ports: Vec<PortStats>,
    /// Frames that the router originated: ARP, neighbour discovery, ICMP errors, replies, and frames of the caller.
    pub originated: u64,
    /// Frames that ended here: ARP, neighbour discovery, packets sent for measurement only, intercepted datagrams, and frames
    /// that the caller consumed.
    pub consumed: u64,
    /// Consumed datagrams that were passed to [`Wires::deliver`](super::Wires::deliver).
    pub intercepted: u64,
    /// Frames with VLAN tags to intercepted destinations, which are forwarded.
    pub intercept_tagged: u64,
    /// Replies sent from intercepted destinations; part of the originated frames.
    pub replies: u64,
    /// Replies that were not sent: no route, too long, or too many queued frames. They are not part of the originated frames.
    pub replies_refused: u64,
    /// ICMP errors suppressed by their rate limit.
    pub errors_suppressed: u64,
}

impl Stats {
    pub(super) fn new(ports: usize) -> Self {
        Self {
            ports: vec![PortStats::default(); ports],
            ..Self::default()
        }
    }

    /// Returns the number of frames received, over all ports.
    pub fn received(&self) -> u64 {
        self.ports.iter().map(|port| port.received).sum()
    }

    /// Returns the number of frames sent, over all ports.
    pub fn sent(&self) -> u64 {
        self.ports.iter().map(|port| port.sent).sum()
    }

    /// Returns the number of frames dropped for one reason, over all ports.
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.ports.iter().map(|port| port.drops[reason as usize]).sum()
    }

    /// Returns the number of frames dropped, over all ports.
    pub fn drops(&self) -> u64 {
        self.ports.iter().flat_map(|port| &port.drops).sum()
    }

    /// Returns whether the counters balance when `queued` frames are in the router.
    pub fn is_balanced(&self, queued: u64) -> bool {
        self.received() + self.originated == self.sent() + self.consumed + self.drops() + queued
    }
}
