//! Requests as bytes, built without `wire`, so that the comparison is independent of its code.

/// Addresses of the ends: requesters 0, 1, … and the responder.
pub(crate) fn address(v6: bool, end: u8) -> std::net::IpAddr {
    if v6 {
        [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end].into()
    } else {
        [10, 97, 0, end].into()
    }
}

/// The responder's end.
pub(crate) const HERE: u8 = 2;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) v6: bool,
    /// The end that sends it.
    pub(crate) from: u8,
    pub(crate) opcode: u8,
    pub(crate) pair: u32,
    pub(crate) psn: u32,
    pub(crate) ack: bool,
    /// Headers after the base header.
    pub(crate) extension: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) pad: u8,
}

/// Address, key, length.
pub(crate) fn reth(address: u64, key: u32, len: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// Address, key, amount added.
pub(crate) fn atomic(address: u64, key: u32, add: u64) -> Vec<u8> {
    [
        &address.to_be_bytes()[..],
        &key.to_be_bytes(),
        &add.to_be_bytes(),
        &[0; 8],
    ]
    .concat()
}

impl Request {
    /// The whole frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut body = vec![self.opcode, 0x40 | self.pad << 4, 0xff, 0xff];
        body.extend(self.pair.to_be_bytes());
        body.extend((u32::from(self.ack) << 31 | self.psn & 0xff_ffff).to_be_bytes());
        body.extend(&self.extension);
        body.extend(&self.payload);
        body.resize(body.len() + usize::from(self.pad), 0);
        body.extend([0; 4]);
        let udp_len = body.len() as u16 + 8;
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let octets = |end| match address(self.v6, end) {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0x20, 0, 0]);
            frame.extend(udp_len.to_be_bytes());
            frame.extend([17, 64]);
        } else {
            frame.extend([8, 0, 0x45, 2]);
            frame.extend((udp_len + 20).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        }
        frame.extend(octets(self.from));
        frame.extend(octets(HERE));
        frame.extend([0xc0, 1, 0x12, 0xb7]);
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(body);
        seal(&mut frame);
        frame
    }
}

/// Offsets of the bytes that the checksum does not cover, from the IP header on.
const UNCOVERED: [&[usize]; 2] = [&[1, 8, 10, 11, 26, 27, 32], &[1, 2, 3, 7, 46, 47, 52]];

/// Changes the fields that may differ from packet to packet: in IPv4 the identification, which the checksum covers; and fields that
/// it does not cover.
pub(crate) fn vary(frame: &mut [u8], mut roll: impl FnMut() -> u8) {
    let v6 = frame[12] == 0x86;
    for at in UNCOVERED[usize::from(v6)] {
        frame[14 + at] = roll();
    }
    if !v6 {
        (frame[18], frame[19]) = (roll(), roll());
    }
    seal(frame);
}

/// Puts the right checksum (wire-formats 6.4) into a frame without tags, if it is long enough for what its headers say.
pub(crate) fn seal(frame: &mut [u8]) {
    let v6 = frame[12] == 0x86;
    let udp = if v6 { 54 } else { 34 };
    let Some(len) = frame
        .get(udp + 4..udp + 6)
        .map(|len| usize::from(u16::from_be_bytes([len[0], len[1]])))
    else {
        return;
    };
    let end = udp + len;
    if len < 24 || end > frame.len() {
        return;
    }
    let mut covered = [&[0xff; 8][..], &frame[14..end - 4]].concat();
    UNCOVERED[usize::from(v6)]
        .iter()
        .for_each(|at| covered[8 + at] = 0xff);
    if v6 {
        covered[8] |= 0x0f;
    }
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    };
    let crc = !covered.iter().fold(u32::MAX, step);
    frame[end - 4..end].copy_from_slice(&crc.to_le_bytes());
}
