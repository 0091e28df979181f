//! Compact storage of a record's values in one allocation: a batch has tens of thousands of records, and most fields are
//! absent.

use std::net::{IpAddr, Ipv6Addr};

use wire::FlowKey;

use super::OwnedValue;
use crate::protobuf::{read_varint, varint};
use crate::record::{Field, FieldKind, Value};

/// Bits of a flow's first byte: only the Flow ID is known; the addresses are IPv6; the flow has ports.
const FLOW_ID: u8 = 1;
const IS_V6: u8 = 2;
const HAS_PORTS: u8 = 4;
/// Initial capacity, bytes: enough for most records.
const CAPACITY: usize = 256;

/// Encoded values: for each present one, its field index (1 byte) and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packed(Box<[u8]>);

impl Packed {
    /// Packs these values, in order.
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a OwnedValue>) -> Self {
        let mut bytes = Vec::with_capacity(CAPACITY);
        for (index, value) in (0..).zip(values) {
            if *value != OwnedValue::Absent {
                bytes.push(index);
                pack(value, &mut bytes);
            }
        }
        // Copied to get an exact allocation; shrinking a vector in place may not give one.
        Self(bytes.as_slice().into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            bytes: &self.0,
            numbers: Vec::new(),
        }
    }
}

fn pack(value: &OwnedValue, out: &mut Vec<u8>) {
    match value {
        OwnedValue::Absent => {}
        OwnedValue::Number(number) => varint(*number, out),
        OwnedValue::Id(id) => out.extend(id.to_le_bytes()),
        OwnedValue::Text(text) => {
            varint(text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
        OwnedValue::Numbers(numbers) => {
            varint(numbers.len() as u64, out);
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        OwnedValue::Flow(flow) => pack_flow(flow, out),
        OwnedValue::Address(address) => out.extend(address),
    }
}

/// Appends a flow: the first byte, then its 32-bit Flow ID, or protocol, addresses and ports.
fn pack_flow(flow: &FlowKey, out: &mut Vec<u8>) {
    if let Some(id) = flow.known_id() {
        out.push(FLOW_ID);
        return out.extend(id.to_le_bytes());
    }
    out.push(if flow.is_v6() { IS_V6 } else { 0 } | if flow.ports().is_some() { HAS_PORTS } else { 0 });
    out.push(flow.proto());
    for address in [flow.src_octets(), flow.dst_octets()] {
        out.extend_from_slice(if flow.is_v6() { address } else { &address[12..] });
    }
    if let Some((sport, dport)) = flow.ports() {
        out.extend([sport, dport].map(u16::to_le_bytes).as_flattened());
    }
}

/// Iterates over the values in field order.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Buffer for the last decoded list.
    numbers: Vec<u32>,
}

impl Reader<'_> {
    /// Calls `each` with the value of the field at `index`, or with `Absent`. Indexes must be visited in order.
    pub(super) fn visit(
        &mut self,
        index: u8,
        field: &'static Field,
        each: &mut impl FnMut(&'static Field, Value<'_>),
    ) {
        if self.bytes.first() != Some(&index) {
            return each(field, Value::Absent);
        }
        self.take(1);
        match field.kind {
            FieldKind::Number | FieldKind::Time => each(field, Value::Number(self.number())),
            FieldKind::Id => each(field, Value::Id(u64::from_le_bytes(self.array()))),
            FieldKind::Text => {
                let len = self.number() as usize;
                each(
                    field,
                    Value::Text(str::from_utf8(self.take(len)).unwrap_or_default()),
                );
            }
            FieldKind::Numbers => {
                let len = self.number() as usize;
                let (numbers, _) = self.take(len * size_of::<u32>()).as_chunks();
                self.numbers.clear();
                self.numbers
                    .extend(numbers.iter().map(|number| u32::from_le_bytes(*number)));
                each(field, Value::Numbers(&self.numbers));
            }
            FieldKind::Flow => each(field, Value::Flow(&self.flow())),
            FieldKind::Address => each(field, Value::Address(&self.array())),
        }
    }

    fn flow(&mut self) -> FlowKey {
        let [kind] = self.array();
        if kind & FLOW_ID != 0 {
            return FlowKey::of_id(u32::from_le_bytes(self.array()));
        }
        let [proto] = self.array();
        let src = self.address(kind);
        let dst = self.address(kind);
        let mut ports = None;
        if kind & HAS_PORTS != 0 {
            let sport = u16::from_le_bytes(self.array());
            let dport = u16::from_le_bytes(self.array());
            ports = Some((sport, dport));
        }
        FlowKey::new(src, dst, ports, proto)
    }

    fn address(&mut self, kind: u8) -> IpAddr {
        match kind & IS_V6 {
            0 => IpAddr::from(self.array::<4>()),
            _ => IpAddr::V6(Ipv6Addr::from(self.array::<16>())),
        }
    }

    fn number(&mut self) -> u64 {
        read_varint(&mut self.bytes).unwrap_or(0)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap_or([0; N])
    }
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.bytes.split_at_checked(len).unwrap_or_default();
        self.bytes = rest;
        bytes
    }
}
