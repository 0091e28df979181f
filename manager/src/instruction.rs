//! INT instruction bitmaps: the bits that a metric needs, and the bytes that they add to a packet (INT 2.1, section 4.7).

use detect::Metric;
use settings::values;

/// Bit number of the node id, without which a record cannot be attributed to a node.
pub const NODE_ID: u8 = 0;
/// Bytes of the shim header (4) and the metadata header (12) of INT-MD and INT-MX 2.1.
pub const HEADER_BYTES: u32 = 16;

/// An instruction bitmap; bit 0 is the most significant bit.
pub type Bits = u16;

/// Renders an amount of a metric, such as a threshold, with its unit.
pub fn amount_text(metric: Metric, amount: u64) -> String {
    match metric {
        Metric::FlowLatency | Metric::HopLatency => values::duration_text(amount),
        Metric::LinkUtilization => format!("{}%", amount as f64 / 1e4),
        _ => amount.to_string(),
    }
}

/// Returns the bitmap with only bit `number` set, 0 to 15.
pub fn bit(number: u8) -> Bits {
    0x8000 >> (number & 15)
}

/// Returns the numbers of the set bits in ascending order.
pub fn numbers(bits: Bits) -> impl Iterator<Item = u8> {
    (0..16).filter(move |number| bits & bit(*number) != 0)
}

/// Returns the bits that `metric` needs. Flow latency is the difference of two timestamps if the domain's clocks are
/// synchronised; without synchronisation it is the sum of the hop latencies.
pub fn metric_bits(metric: Metric, synchronised: bool) -> Bits {
    let own = match metric {
        Metric::FlowPath => 0,
        Metric::FlowLatency if synchronised => bit(2) | bit(4) | bit(5),
        Metric::FlowLatency | Metric::HopLatency => bit(2),
        Metric::QueueOccupancy => bit(3),
        // INT 1.0 and later have no congestion status: bit 8 is the occupancy of a buffer, which is no queue's.
        Metric::QueueCongestion => 0,
        Metric::LinkUtilization => bit(1) | bit(7),
    };
    own | bit(NODE_ID)
}

/// Returns the length of a node's record, bytes. Timestamps and level-2 interfaces (bits 4 to 6) take 8 bytes, other items 4.
pub fn record_bytes(bits: Bits) -> u32 {
    4 * (bits.count_ones() + (bits & 0x0e00).count_ones())
}

/// Returns the name of a bit as used in `items` of `[[switch.watch]]`.
pub fn name(number: u8) -> &'static str {
    match number {
        0 => "node_id",
        1 => "interfaces",
        2 => "hop_latency",
        3 => "queue",
        4 => "ingress_ts",
        5 => "egress_ts",
        6 => "l2_interfaces",
        7 => "tx_utilization",
        8 => "buffer",
        15 => "checksum_complement",
        _ => "reserved",
    }
}

/// Joins the names of the bits with commas.
pub fn names(bits: Bits) -> String {
    numbers(bits).map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_bits_and_records_have_sizes() {
        assert_eq!(
            Metric::ALL.map(|metric| metric_bits(metric, true)),
            [0x8000, 0xac00, 0xa000, 0x9000, 0x8000, 0xc100]
        );
        assert_eq!(metric_bits(Metric::FlowLatency, false), 0xa000);
        assert_eq!([0x8000, 0xac00, 0xfd00, 0].map(record_bytes), [4, 24, 36, 0]);
        assert_eq!(names(0xa000), "node_id, hop_latency");
    }
}
