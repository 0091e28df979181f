//! Encodes the profile with which the kernel's decoder reads a source: the Rust side of `struct profile` and `struct ports` in
//! `parse.h`, and of `struct plans` in `tables.h`.

use wire::Items;
use wire::int::Layout;
use wire::profile::TcpShim;

use crate::bytes::put;

/// Bytes of `struct profile`.
pub const PROFILE_LEN: usize = 80;
/// Bytes of `struct ports`.
pub const PORTS_LEN: usize = 20;
/// Value of `dscp_other` for a profile without one: larger than any DSCP.
const NO_DSCP: u8 = 0xff;

/// Units of the numbers in a source's reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    /// Nanoseconds per unit of timestamps, at least 1.
    pub stamp_ns: u32,
    /// Nanoseconds per unit of hop latency, at least 1.
    pub latency_ns: u32,
    /// Millionths of the link per unit of utilization, at least 1.
    pub utilization: u32,
    /// True if timestamps of different nodes may be compared.
    pub synchronised: bool,
    /// The longest plausible hop latency, ns; `u64::MAX` disables the check.
    pub max_latency: u64,
}

impl Default for Units {
    /// Nanoseconds, unsynchronised clocks, utilization in millionths, any latency.
    fn default() -> Self {
        Self {
            stamp_ns: 1,
            latency_ns: 1,
            utilization: 1,
            synchronised: false,
            max_latency: u64::MAX,
        }
    }
}

/// Offsets of the fields of `struct profile`, in its order.
mod field {
    pub(super) const PROBE_MARKER: usize = 0;
    pub(super) const HAS_PROBE_MARKER: usize = 8;
    pub(super) const STAMP_NS: usize = 12;
    pub(super) const LATENCY_NS: usize = 16;
    pub(super) const UTILIZATION_UNIT: usize = 20;
    pub(super) const INT_UDP_PORT: usize = 24;
    pub(super) const GRE_PROTOCOL: usize = 26;
    pub(super) const PORTS: usize = 28;
    pub(super) const DOMAINS: usize = 44;
    pub(super) const PORT_COUNT: usize = 52;
    pub(super) const DIALECT: usize = 53;
    pub(super) const DSCP: usize = 54;
    pub(super) const DSCP_MASK: usize = 55;
    pub(super) const DSCP_OTHER: usize = 56;
    pub(super) const TCP_AFTER_OPTIONS: usize = 57;
    pub(super) const SYNCHRONISED: usize = 58;
    pub(super) const DROP_ZERO_UNKNOWN: usize = 59;
    pub(super) const MAX_LATENCY: usize = 64;
    pub(super) const VXLAN_PORTS: usize = 72;
    /// Offsets in `struct domain`; the first is its length.
    pub(super) const DOMAIN_LEN: usize = 4;
    pub(super) const SOURCE_ONLY_WORDS: usize = 2;
    pub(super) const KNOWN: usize = 3;
    /// Offsets in `struct ports`.
    pub(super) const COUNT: usize = 0;
    pub(super) const PORT: usize = 4;
}

/// Encodes a profile as the kernel's decoder reads it.
pub fn profile(profile: &wire::Profile, units: &Units) -> [u8; PROFILE_LEN] {
    let mut out = [0; PROFILE_LEN];
    put(
        &mut out,
        field::PROBE_MARKER,
        &profile.probe_marker.unwrap_or(0).to_ne_bytes(),
    );
    put(
        &mut out,
        field::HAS_PROBE_MARKER,
        &u32::from(profile.probe_marker.is_some()).to_ne_bytes(),
    );
    put(&mut out, field::STAMP_NS, &units.stamp_ns.to_ne_bytes());
    put(&mut out, field::LATENCY_NS, &units.latency_ns.to_ne_bytes());
    put(
        &mut out,
        field::UTILIZATION_UNIT,
        &units.utilization.to_ne_bytes(),
    );
    put(&mut out, field::INT_UDP_PORT, &profile.int_udp_port.to_ne_bytes());
    put(&mut out, field::GRE_PROTOCOL, &profile.gre_protocol.to_ne_bytes());
    let ports = profile.telemetry_ports.as_slice();
    put_ports(&mut out, field::PORTS, ports);
    out[field::PORT_COUNT] = ports.len() as u8;
    for (i, domain) in profile.domains.iter().enumerate() {
        let Some(domain) = domain else { continue };
        let at = field::DOMAINS + i * field::DOMAIN_LEN;
        put(&mut out, at, &domain.id.to_ne_bytes());
        out[at + field::SOURCE_ONLY_WORDS] = domain.source_only_words;
        out[at + field::KNOWN] = 1;
    }
    out[field::DIALECT] = profile.dialect as u8;
    out[field::DSCP] = profile.dscp;
    out[field::DSCP_MASK] = profile.dscp_mask;
    out[field::DSCP_OTHER] = profile.dscp_other.unwrap_or(NO_DSCP);
    out[field::TCP_AFTER_OPTIONS] = u8::from(profile.tcp_shim == TcpShim::AfterOptions);
    out[field::SYNCHRONISED] = u8::from(units.synchronised);
    out[field::DROP_ZERO_UNKNOWN] = u8::from(profile.drop_zero_unknown);
    put(&mut out, field::MAX_LATENCY, &units.max_latency.to_ne_bytes());
    put_ports(&mut out, field::VXLAN_PORTS, &profile.vxlan_ports);
    out
}

/// Encodes the ports whose datagrams are telemetry, at most eight, as the kernel's decoder reads them.
pub fn ports(ports: &wire::TelemetryPorts) -> [u8; PORTS_LEN] {
    let ports = ports.as_slice();
    let mut out = [0; PORTS_LEN];
    put(&mut out, field::COUNT, &(ports.len() as u32).to_ne_bytes());
    put_ports(&mut out, field::PORT, ports);
    out
}

/// Offsets of the fields of `struct plan`, in its order.
mod plan {
    use wire::Items;

    pub(super) const RECIPROCAL: usize = 0;
    pub(super) const AT: usize = 4;
    pub(super) const ABSENT: usize = 9;
    pub(super) const LEN: usize = 12;
    /// The items of `enum plan_item`.
    pub(super) const ITEMS: [Items; 5] = [
        Items::INTERFACES,
        Items::HOP_LATENCY,
        Items::QUEUE,
        Items::INGRESS_TS,
        Items::TX_UTILIZATION,
    ];
    /// Number of record lengths, in words.
    pub(super) const LENGTHS: u8 = 32;
    /// Number of first bytes of a bitmap.
    pub(super) const BITMAPS: usize = 256;
}

/// Encodes, for each first byte of a bitmap of INT 1.0 and each length of a record, where the fast path finds the items that it
/// reads (`struct plans`).
pub(crate) fn plans(dialect: wire::Dialect) -> Vec<u8> {
    let mut out = vec![0; plan::LEN * usize::from(plan::LENGTHS) * plan::BITMAPS];
    let lengths = (0..=u8::MAX).flat_map(|first| (0..plan::LENGTHS).map(move |words| (first, words)));
    for ((first, words), out) in lengths.zip(out.chunks_exact_mut(plan::LEN)) {
        let bitmap = u16::from(first) << 8;
        if let Some(layout) = planned_layout(bitmap, words, dialect) {
            put(out, plan::RECIPROCAL, &layout.reciprocal().to_ne_bytes());
            for (number, item) in plan::ITEMS.into_iter().enumerate() {
                if layout.carried().contains(item) {
                    out[plan::AT + number] = (layout.word_of(item) * 4) as u8;
                } else {
                    out[plan::ABSENT] |= 1 << number;
                }
            }
        }
    }
    out
}

/// Returns the layout of such records, or `None` if the fast path cannot read them: the length of the stack decides about the
/// layout, the node is missing, the interfaces are of level 2 only, or the latency follows from timestamps.
fn planned_layout(bitmap: u16, words: u8, dialect: wire::Dialect) -> Option<Layout> {
    let layout = Layout::int_10(bitmap, words, dialect).ok()?;
    let both = usize::from(words) * usize::from(wire::int::layout::words_10(bitmap));
    let is_certain = Layout::words_10(bitmap, words, both, dialect) == words;
    let items = layout.carried();
    let has_level_2_only = items.contains(Items::L2_INTERFACES) && !items.contains(Items::INTERFACES);
    let has_only_stamps = !items.contains(Items::HOP_LATENCY)
        && items.contains(Items::INGRESS_TS)
        && items.contains(Items::EGRESS_TS);
    let is_planned = is_certain && items.contains(Items::NODE_ID) && !has_level_2_only && !has_only_stamps;
    is_planned.then_some(layout)
}

fn put_ports(out: &mut [u8], at: usize, ports: &[u16]) {
    for (i, port) in ports.iter().enumerate() {
        put(out, at + 2 * i, &port.to_ne_bytes());
    }
}
