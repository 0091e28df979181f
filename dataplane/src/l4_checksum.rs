//! L4 checksum of packets with INT: how the domain treats it, and how the sink verifies it.
//!
//! The code that inserts, pushes and strips INT updates the checksum. If the domain uses another treatment, the checksum is
//! rewritten afterwards.

use wire::{Profile, checksum, tcp, udp};

use crate::packet::{Headers, ParsedPacket, TCP, TCP_CHECKSUM, UDP, fill_l4, tcp_checksum};

/// A sink verifies the checksum of one packet in this many.
const SAMPLE: u64 = 64;

/// Treatment of the L4 checksum by nodes that change a packet's INT. All nodes of a domain must use the same treatment, because
/// the sink reverts the changes of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L4Checksum {
    /// Nodes update the checksum when they insert, extend or strip INT, as INT 2.1 specifies.
    #[default]
    Update,
    /// Nodes leave the checksum unchanged, so that it is correct again once INT is stripped, as in the programs of ONOS and
    /// fabric. With checksum complements (instruction bit 15) it is correct on the whole path.
    Leave,
    /// Nodes set the UDP checksum to 0 ("none"), and update that of TCP. Over IPv6, where 0 is not valid, the sink computes the
    /// UDP checksum from all bytes.
    Zero,
}

/// Checksum of a packet before its INT changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    proto: u8,
    checksum: u16,
    len: usize,
}

impl Before {
    /// Reads the checksum; `None` if the switch need not rewrite it.
    pub(crate) fn read(frame: &[u8], setting: L4Checksum) -> Option<Self> {
        if setting == L4Checksum::Update {
            return None;
        }
        let headers = Headers::parse(frame)?;
        Some(Self {
            proto: headers.proto,
            checksum: read(frame, &headers)?,
            len: frame.len(),
        })
    }

    /// Sets the checksum complement of the record that this node added, if the packet requests one, in a domain that leaves the
    /// checksum unchanged: with it, the original checksum covers the inserted bytes. `frame` still has the updated checksum.
    pub(crate) fn complement(self, frame: &mut [u8], profile: &Profile) {
        // Instruction bit 15, the least significant.
        const CHECKSUM_COMPLEMENT: u16 = 1;
        if self.proto == UDP && self.checksum == 0 {
            return;
        }
        let Some(headers) = Headers::parse(frame).filter(|headers| headers.proto == self.proto) else {
            return;
        };
        let Some(updated) = read(frame, &headers) else {
            return;
        };
        let carried = ParsedPacket::parse(frame, profile)
            .ok()
            .and_then(|seen| seen.carried);
        let Some(carried) = carried.filter(|carried| carried.bitmap & CHECKSUM_COMPLEMENT != 0) else {
            return;
        };
        let end = carried.stack() + usize::from(carried.record_words()) * 4;
        // The word is all-ones now, which does not change the sum.
        let sum = u32::from(updated) + u32::from(!self.checksum);
        let complement = (sum & 0xffff) + (sum >> 16);
        if let Some(word) = frame.get_mut(..end).and_then(<[u8]>::last_chunk_mut) {
            *word = complement.to_be_bytes();
        }
    }

    /// Rewrites the checksum as the domain's setting demands. A UDP header that was inserted or removed has its own checksum.
    pub(crate) fn apply(self, frame: &mut [u8], setting: L4Checksum, to_edge: bool) {
        let headers = Headers::fixed_parts(frame).filter(|headers| headers.proto == self.proto);
        let Some(headers) = headers else { return };
        if setting == L4Checksum::Leave {
            write(frame, &headers, self.checksum);
        } else if headers.proto == UDP && frame.len() != self.len {
            write(frame, &headers, 0);
            if headers.v6 && to_edge {
                let len = segment(frame, &headers).map_or(0, <[u8]>::len);
                fill_l4(frame, headers.ip, headers.l4, UDP, len);
            }
        }
    }
}

/// Returns whether the sink verifies packet number `number`.
pub(crate) fn is_sampled(number: u64) -> bool {
    number % SAMPLE == 1
}

/// Returns whether the L4 checksum of a packet is correct, or absent.
pub(crate) fn is_valid(frame: &[u8]) -> bool {
    let Some(headers) = Headers::parse(frame) else {
        return true;
    };
    let Some(checksum) = read(frame, &headers) else {
        return true;
    };
    let Some(segment) = segment(frame, &headers) else {
        return true;
    };
    if headers.proto == UDP && checksum == 0 {
        return true;
    }
    let addresses = if headers.v6 { 8..40 } else { 12..20 };
    let Some(addresses) = frame.get(headers.ip..).and_then(|ip| ip.get(addresses)) else {
        return true;
    };
    let mut sum = u32::from(!checksum::of(addresses)) + u32::from(!checksum::of(segment));
    sum += u32::from(headers.proto) + segment.len() as u32;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// Returns the bytes from the L4 header to the end of the IP packet.
fn segment<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    let end = headers.ip.checked_add(headers.ip_len(frame))?;
    frame.get(headers.l4..end)
}

fn read(frame: &[u8], headers: &Headers) -> Option<u16> {
    let rest = frame.get(headers.l4..)?;
    match headers.proto {
        UDP => udp::Packet::new_checked(rest)
            .ok()
            .map(|header| header.checksum()),
        TCP => {
            let checksum = rest.get(..tcp::HEADER_LEN)?.get(TCP_CHECKSUM..)?.first_chunk()?;
            Some(u16::from_be_bytes(*checksum))
        }
        _ => None,
    }
}

fn write(frame: &mut [u8], headers: &Headers, checksum: u16) {
    let Some(rest) = frame.get_mut(headers.l4..) else {
        return;
    };
    if headers.proto == UDP {
        if let Ok(mut header) = udp::Packet::new_checked(rest) {
            header.set_checksum(checksum);
        }
    } else if let Some(field) = tcp_checksum(rest) {
        *field = checksum.to_be_bytes();
    }
}
