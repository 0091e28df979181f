//! Formats a flow as text without allocation, because a filter searches the texts of all flows.

use std::fmt::{self, Write};
use std::net::IpAddr;

use wire::FlowKey;

/// Maximum length: two IPv6 addresses of 39 characters in brackets, two ports (`:65535`), `>`, and a protocol (`/255`).
const LONGEST: usize = 2 * (39 + 2 + 6) + 1 + 4;

/// Buffer for the text of a flow.
#[derive(Debug)]
pub(super) struct FlowText {
    /// Four bytes longer than the text: an octet and its dot are written as four bytes at once, some of them after the end.
    bytes: [u8; LONGEST + 4],
    len: usize,
}

impl Default for FlowText {
    fn default() -> Self {
        Self {
            bytes: [0; LONGEST + 4],
            len: 0,
        }
    }
}

impl FlowText {
    /// Formats `flow` as its `Display` implementation does.
    #[inline]
    pub(super) fn of(&mut self, flow: &FlowKey) -> &[u8] {
        self.len = 0;
        match (flow.known_id(), flow.src(), flow.dst()) {
            (None, IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.end(src.octets(), flow.src_port());
                self.push(b'>');
                self.end(dst.octets(), flow.dst_port());
                self.push(b'/');
                self.octet(flow.proto());
                // Removes the dot after the protocol number.
                self.len -= 1;
            }
            // Never fails, because every text fits.
            _ => drop(write!(self, "{flow}")),
        }
        &self.bytes[..self.len]
    }

    fn end(&mut self, address: [u8; 4], port: Option<u16>) {
        address.into_iter().for_each(|octet| self.octet(octet));
        self.len -= 1;
        if let Some(port) = port {
            self.push(b':');
            self.port(port);
        }
    }

    /// Appends an octet and a dot.
    fn octet(&mut self, value: u8) {
        let (text, len) = OCTETS[usize::from(value)];
        self.bytes[self.len..self.len + 4].copy_from_slice(&text);
        self.len += usize::from(len);
    }

    fn port(&mut self, mut value: u16) {
        let digits = 1 + [10, 100, 1_000, 10_000]
            .into_iter()
            .filter(|least| value >= *least)
            .count();
        for digit in self.bytes[self.len..self.len + digits].iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.len += digits;
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}

impl Write for FlowText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self
            .bytes
            .get_mut(self.len..self.len + text.len())
            .ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Each octet in decimal followed by a dot, and the length of that text.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut value = 0;
    while value < 256 {
        let digits = [
            b'0' + (value / 100) as u8,
            b'0' + (value / 10 % 10) as u8,
            b'0' + (value % 10) as u8,
        ];
        let first = match value {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        let mut at = first;
        while at < 3 {
            octets[value].0[at - first] = digits[at];
            at += 1;
        }
        octets[value].1 = (3 - first + 1) as u8;
        value += 1;
    }
    octets
};

/// Returns true if `text` contains `wanted`, which is not empty.
#[inline]
pub(super) fn contains(text: &[u8], wanted: &[u8]) -> bool {
    let (Some((first, rest)), Some(last)) = (wanted.split_first(), text.len().checked_sub(wanted.len()))
    else {
        return false;
    };
    (0..=last).any(|at| text[at] == *first && text[at + 1..].starts_with(rest))
}
