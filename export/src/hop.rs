//! Record of the stream `hops`: one hop of one Telemetry Report, and its binary encoding in the [spool](crate::spool).
//!
//! ```text
//! ts (8) | report ID (8) | hop (1) | hops (1) | presence bits (2) | flow | present numbers (8 each)
//! flow: 0, or kind (1), protocol (1), addresses (2×4 or 2×16) or Flow ID (4), ports (2×2, if kind has PORTS)
//! ```
//!
//! Integers are little-endian. Bit i of the presence bits is set if number i of `numbers` follows.

use wire::FlowKey;

const IPV4: u8 = 1;
const IPV6: u8 = 2;
const FLOW_ID: u8 = 3;
const HAS_PORTS: u8 = 4;
/// Maximum encoded size of a hop, bytes.
const MAX_HOP_BYTES: usize = 8 + 8 + 2 + 2 + (2 + 32 + 4) + NUMBERS * 8;
/// Number of optional numbers of a hop.
const NUMBERS: usize = 10;

/// One hop of one report, with values converted to the units below.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hop {
    /// Receive time of the report, ns.
    pub ts: u64,
    /// ID of the report: equal for all its hops, also if two collectors receive it.
    pub report: u64,
    /// Index in the report, in forwarding order, from 0.
    pub hop: u8,
    /// Number of hops in the report; 0 if they do not form a path, as in records of SF-INT.
    pub hops: u8,
    /// The flow of the packet.
    pub flow: Option<FlowKey>,
    /// The node id of the hop.
    pub node: Option<u32>,
    /// The ingress interface of the packet.
    pub ingress_if: Option<u32>,
    /// The egress interface of the packet.
    pub egress_if: Option<u32>,
    /// The queue that the packet passed.
    pub queue: Option<u8>,
    /// Time in the node, ns.
    pub hop_latency: Option<u64>,
    /// Occupancy of the queue, in the unit of the device.
    pub queue_occupancy: Option<u32>,
    /// Congestion status of the queue (INT 0.5), in the unit of the device.
    pub queue_congestion: Option<u32>,
    /// Utilization of the egress link, millionths.
    pub link_utilization: Option<u64>,
    /// Ingress timestamp of the node's clock, ns: all 64 bits, or the lower 32.
    pub ingress_ts: Option<u64>,
    /// Egress timestamp of the node's clock, ns: all 64 bits, or the lower 32.
    pub egress_ts: Option<u64>,
}

impl Hop {
    /// Appends the encoded hop to `out`.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let numbers = self.numbers();
        let present = numbers
            .iter()
            .rev()
            .fold(0_u16, |bits, number| bits << 1 | u16::from(number.is_some()));
        // Encoded in a stack buffer first, so that the vector is extended once.
        let mut buffer = Buffer {
            bytes: [0; MAX_HOP_BYTES],
            len: 0,
        };
        buffer.push(&self.ts.to_le_bytes());
        buffer.push(&self.report.to_le_bytes());
        buffer.push(&[self.hop, self.hops]);
        buffer.push(&present.to_le_bytes());
        match &self.flow {
            None => buffer.push(&[0]),
            Some(flow) => buffer.push_flow(flow),
        }
        for number in numbers.into_iter().flatten() {
            buffer.push(&number.to_le_bytes());
        }
        out.extend_from_slice(&buffer.bytes[..buffer.len]);
    }

    /// Decodes a hop that [`Hop::write`] encoded. Returns `None` for anything else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut hop = Self {
            ts: u64::from_le_bytes(take(&mut rest)?),
            report: u64::from_le_bytes(take(&mut rest)?),
            ..Self::default()
        };
        [hop.hop, hop.hops] = take(&mut rest)?;
        let present = u16::from_le_bytes(take(&mut rest)?);
        hop.flow = read_flow(&mut rest)?;
        let mut numbers = [None; NUMBERS];
        for (i, number) in numbers.iter_mut().enumerate() {
            if present >> i & 1 == 1 {
                *number = Some(u64::from_le_bytes(take(&mut rest)?));
            }
        }
        if !rest.is_empty() || present >> numbers.len() != 0 {
            return None;
        }
        hop.set(numbers)?;
        Some(hop)
    }

    fn numbers(&self) -> [Option<u64>; NUMBERS] {
        [
            self.node.map(u64::from),
            self.ingress_if.map(u64::from),
            self.egress_if.map(u64::from),
            self.queue.map(u64::from),
            self.hop_latency,
            self.queue_occupancy.map(u64::from),
            self.queue_congestion.map(u64::from),
            self.link_utilization,
            self.ingress_ts,
            self.egress_ts,
        ]
    }

    fn set(&mut self, numbers: [Option<u64>; NUMBERS]) -> Option<()> {
        let [
            node,
            ingress_if,
            egress_if,
            queue,
            latency,
            occupancy,
            congestion,
            utilization,
            ingress,
            egress,
        ] = numbers;
        self.node = narrow(node)?;
        self.ingress_if = narrow(ingress_if)?;
        self.egress_if = narrow(egress_if)?;
        self.queue = narrow(queue)?;
        self.hop_latency = latency;
        self.queue_occupancy = narrow(occupancy)?;
        self.queue_congestion = narrow(congestion)?;
        self.link_utilization = utilization;
        self.ingress_ts = ingress;
        self.egress_ts = egress;
        Some(())
    }
}

/// Converts a number to a smaller type. Returns `None` if it does not fit.
fn narrow<T: TryFrom<u64>>(number: Option<u64>) -> Option<Option<T>> {
    number.map(T::try_from).transpose().ok()
}

/// Stack buffer for one encoded hop.
struct Buffer {
    bytes: [u8; MAX_HOP_BYTES],
    len: usize,
}

impl Buffer {
    #[inline]
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    #[inline]
    fn push_flow(&mut self, flow: &FlowKey) {
        if let Some(id) = flow.known_id() {
            self.push(&[FLOW_ID, flow.proto()]);
            self.push(&id.to_le_bytes());
            return;
        }
        let ports = flow.ports();
        let with_ports = if ports.is_some() { HAS_PORTS } else { 0 };
        if flow.is_v6() {
            self.push(&[IPV6 | with_ports, flow.proto()]);
            self.push(flow.src_octets());
            self.push(flow.dst_octets());
        } else {
            self.push(&[IPV4 | with_ports, flow.proto()]);
            self.push(&flow.src_octets()[12..]);
            self.push(&flow.dst_octets()[12..]);
        }
        if let Some((source, destination)) = ports {
            self.push(&source.to_le_bytes());
            self.push(&destination.to_le_bytes());
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn read_flow(rest: &mut &[u8]) -> Option<Option<FlowKey>> {
    let [kind] = take(rest)?;
    if kind == 0 {
        return Some(None);
    }
    let [proto] = take(rest)?;
    Some(Some(match kind & !HAS_PORTS {
        IPV4 => FlowKey::v4(take(rest)?, take(rest)?, read_ports(rest, kind)?, proto),
        IPV6 => FlowKey::v6(take(rest)?, take(rest)?, read_ports(rest, kind)?, proto),
        FLOW_ID if kind == FLOW_ID => FlowKey::of_id(u32::from_le_bytes(take(rest)?)),
        _ => return None,
    }))
}

fn read_ports(rest: &mut &[u8], kind: u8) -> Option<Option<(u16, u16)>> {
    if kind & HAS_PORTS == 0 {
        return Some(None);
    }
    let source = u16::from_le_bytes(take(rest)?);
    let destination = u16::from_le_bytes(take(rest)?);
    Some(Some((source, destination)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::rng::Rng;

    fn random(rng: &mut Rng) -> Hop {
        let flows = [
            "10.0.0.1:5000>10.0.0.2:80/17",
            "10.0.0.1>10.0.0.2/1",
            "[fd00::1]:5>[fd00::2]:6/17",
            "fd00::1>fd00::2/58",
        ];
        let small = |rng: &mut Rng| (rng.below(3) > 0).then(|| rng.roll() as u32);
        Hop {
            ts: rng.roll(),
            report: rng.roll(),
            hop: rng.roll() as u8,
            hops: rng.roll() as u8,
            flow: match rng.below(6) {
                0 => None,
                1 => Some(FlowKey::of_id(rng.roll() as u32)),
                which => flows[which - 2].parse().ok(),
            },
            node: small(rng),
            ingress_if: small(rng),
            egress_if: small(rng),
            queue: small(rng).map(|queue| queue as u8),
            hop_latency: small(rng).map(u64::from),
            queue_occupancy: small(rng),
            queue_congestion: small(rng),
            link_utilization: small(rng).map(u64::from),
            ingress_ts: Some(rng.roll()).filter(|ts| ts % 3 > 0),
            egress_ts: Some(rng.roll()).filter(|ts| ts % 3 > 0),
        }
    }

    #[test]
    fn a_hop_survives_its_bytes_and_a_part_of_them_is_none() {
        for seed in 0..2_000 {
            let hop = random(&mut Rng(seed));
            let mut bytes = vec![7];
            hop.write(&mut bytes);
            assert_eq!(Hop::read(&bytes[1..]), Some(hop));
            for end in 1..bytes.len() {
                assert_eq!(Hop::read(&bytes[1..end]), None, "{seed} {end}");
            }
            bytes.push(0);
            assert_eq!(Hop::read(&bytes[1..]), None);
            // Other bytes are another hop, or none.
            Rng(seed).corrupt(&mut bytes);
            if let Some(read) = Hop::read(bytes.get(1..).unwrap_or_default()) {
                let mut again = Vec::new();
                read.write(&mut again);
                assert_eq!(Hop::read(&again), Some(read));
            }
        }
    }
}
