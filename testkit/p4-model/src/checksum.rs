//! Checksum and hash calculations of a P4 program (`csum16`, `crc32`) over a list of headers, fields and constants.

use crate::packet::{BitWriter, Phv};
use crate::program::{Algorithm, Calculation, Input, Program};

impl Calculation {
    /// Concatenates the inputs bit by bit and computes the checksum over them. As in BMv2, an invalid header adds no bytes,
    /// but a field is read even if its header is invalid (0 if nothing has set it).
    pub(crate) fn value(&self, program: &Program, phv: &Phv) -> u128 {
        let mut writer = BitWriter::default();
        for input in &self.input {
            match input {
                Input::Constant(value, width) => writer.put(*value, *width),
                Input::Header(header) => {
                    let mut bytes = Vec::new();
                    phv.emit(*header, &mut bytes);
                    writer.put_bytes(&bytes);
                }
                Input::Field(field) => match program.width(*field) {
                    Some(width) => writer.put(phv.get(*field), width),
                    None => writer.put_bytes(phv.variable(field.header)),
                },
            }
        }
        match self.algorithm {
            Algorithm::Csum16 => u128::from(csum16(&writer.bytes)),
            Algorithm::Crc32 => u128::from(crc32(&writer.bytes)),
        }
    }
}

/// Returns the internet checksum (RFC 1071).
fn csum16(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u64 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the CRC-32 of Ethernet, computed bit by bit (reflected polynomial 0xEDB88320).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 != 0 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithms_are_the_catalogues() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(
            csum16(&[
                0x45, 0, 0, 0x6e, 0, 1, 0x40, 0, 0x3e, 0x11, 0x28, 0x7c, 10, 0, 0, 1, 10, 0, 0, 2
            ]),
            0
        );
    }
}
