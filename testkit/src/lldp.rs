//! LLDP frames (IEEE 802.1AB) of the test vectors: the JSON line that a vector expects, and the bytes that the writers emit.

use crate::object::{Object, error};
use wire::lldp::{ETHERTYPE, Id, Lldpdu, NEAREST_BRIDGE};
use wire::{Refusal, ethernet};

/// Parses the LLDPDU of a frame; `None` if the frame is not LLDP.
fn parse(frame: &[u8]) -> Result<Option<Lldpdu<'_>>, Refusal> {
    let ethernet = ethernet::Packet::new_checked(frame)?;
    let is_lldp = (ethernet.dst(), ethernet.ethertype()) == (NEAREST_BRIDGE, ETHERTYPE);
    is_lldp.then(|| Lldpdu::parse(ethernet.payload())).transpose()
}

/// Describes a frame as one JSON line; `{}` if it is not LLDP.
pub fn frame(frame: &[u8]) -> String {
    let lldpdu = match parse(frame) {
        Ok(Some(lldpdu)) => lldpdu,
        Ok(None) => return "{}".to_owned(),
        Err(refusal) => return error(refusal),
    };
    let mut out = Object::new();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut id = |name: &str, id: Id<'_>| {
        let mut inner = Object::new();
        inner.number("subtype", id.subtype);
        inner.text("id", &hex(id.bytes));
        out.raw(name, &inner.finish());
    };
    id("chassis", lldpdu.chassis);
    id("port", lldpdu.port);
    out.number("ttl", lldpdu.ttl);
    let texts = [
        ("port_description", lldpdu.port_description),
        ("system_name", lldpdu.system_name),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            out.text(name, &String::from_utf8_lossy(text));
        }
    }
    out.finish()
}

/// Parses an LLDP frame and returns the bytes that the writers emit for it.
pub fn again(frame: &[u8]) -> Vec<u8> {
    let lldpdu = parse(frame).expect("good").expect("LLDP");
    let mut out = vec![0xa5; ethernet::HEADER_LEN + lldpdu.len()];
    let header = ethernet::Packet::new_checked(frame).map(|packet| ethernet::Repr::parse(&packet));
    header.expect("whole").emit(&mut out);
    lldpdu
        .emit(&mut out[ethernet::HEADER_LEN..])
        .expect("it has room");
    out
}
