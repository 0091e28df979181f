//! The packet header vector (PHV): values and validity of all header instances, and reading and writing of bit fields.

use crate::field::{Field, VALID};

/// A header instance of a program.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// Widths of the fields in bits; `None` for the field of variable length (at most one).
    pub(crate) widths: Vec<Option<u32>>,
    /// A metadata struct: always valid, and not part of the frame.
    pub(crate) metadata: bool,
}

/// The values of all header instances.
#[derive(Clone, Debug)]
pub(crate) struct Phv {
    headers: Vec<Instance>,
}

/// The state of one header instance while a packet is processed.
#[derive(Clone, Debug)]
struct Instance {
    valid: bool,
    fields: Vec<u128>,
    /// Content of the field of variable length.
    variable: Vec<u8>,
    widths: Vec<Option<u32>>,
}

impl Phv {
    pub(crate) fn new(headers: &[Header]) -> Self {
        let headers = headers.iter().map(|header| Instance {
            valid: header.metadata,
            fields: vec![0; header.widths.len()],
            variable: Vec::new(),
            widths: header.widths.clone(),
        });
        Self {
            headers: headers.collect(),
        }
    }

    pub(crate) fn is_valid(&self, header: usize) -> bool {
        self.headers[header].valid
    }

    pub(crate) fn set_valid(&mut self, header: usize, valid: bool) {
        self.headers[header].valid = valid;
    }

    pub(crate) fn get(&self, Field { header, field }: Field) -> u128 {
        self.headers[header].fields[field]
    }

    /// Sets a field to the low bits of `value`, or the header's validity for `$valid$`.
    pub(crate) fn set(&mut self, Field { header, field }: Field, value: u128) {
        let instance = &mut self.headers[header];
        if field == VALID {
            instance.valid = value != 0;
        } else if let Some(width) = instance.widths[field] {
            instance.fields[field] = value & mask(width);
        }
    }

    pub(crate) fn variable(&self, header: usize) -> &[u8] {
        &self.headers[header].variable
    }

    pub(crate) fn set_variable(&mut self, header: usize, bytes: Vec<u8>) {
        self.headers[header].variable = bytes;
    }

    /// Copies a header with its validity, as an assignment between headers of one type does.
    pub(crate) fn copy(&mut self, to: usize, from: usize) {
        let source = self.headers[from].clone();
        let target = &mut self.headers[to];
        target.valid = source.valid;
        target.fields = source.fields;
        target.variable = source.variable;
    }

    /// Extracts a header from the front of `bytes`; its field of variable length, if it has one, takes `variable` bytes.
    /// Returns the length in bytes, or `None` if `bytes` is too short.
    pub(crate) fn extract(&mut self, header: usize, bytes: &[u8], variable: usize) -> Option<usize> {
        let instance = &mut self.headers[header];
        let fixed: u32 = instance.widths.iter().flatten().sum();
        let len = fixed as usize / 8 + variable;
        let bytes = bytes.get(..len)?;
        let mut bit = 0;
        for (field, width) in instance.widths.iter().enumerate() {
            match width {
                Some(width) => {
                    instance.fields[field] = bits(bytes, bit, *width);
                    bit += *width as usize;
                }
                None => {
                    instance.variable = bytes[bit / 8..bit / 8 + variable].to_vec();
                    bit += variable * 8;
                }
            }
        }
        instance.valid = true;
        Some(len)
    }

    /// Appends the header's bytes to `out` if the header is valid.
    pub(crate) fn emit(&self, header: usize, out: &mut Vec<u8>) {
        let instance = &self.headers[header];
        if !instance.valid {
            return;
        }
        let mut writer = BitWriter::default();
        for (field, width) in instance.widths.iter().enumerate() {
            match width {
                Some(width) => writer.put(instance.fields[field], *width),
                None => writer.put_bytes(&instance.variable),
            }
        }
        out.extend_from_slice(&writer.bytes);
    }

    /// Sets all metadata to 0.
    pub(crate) fn reset_metadata(&mut self, headers: &[Header]) {
        for (instance, header) in self.headers.iter_mut().zip(headers) {
            if header.metadata {
                instance.fields.fill(0);
                instance.variable.clear();
            }
        }
    }
}

/// A mask of the lowest `width` bits; all ones from 128 on.
pub(crate) fn mask(width: u32) -> u128 {
    1_u128.checked_shl(width).map_or(u128::MAX, |bit| bit - 1)
}

/// Reads `width` bits from bit `offset` on, most significant bit first. `bytes` must be long enough.
pub(crate) fn bits(bytes: &[u8], offset: usize, width: u32) -> u128 {
    (offset..offset + width as usize).fold(0, |value, bit| {
        value << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1)
    })
}

/// A buffer that is written bit by bit, most significant bit first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    pub(crate) bytes: Vec<u8>,
    len: usize,
}

impl BitWriter {
    pub(crate) fn put(&mut self, value: u128, width: u32) {
        for shift in (0..width).rev() {
            if self.len.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if value >> shift & 1 != 0 {
                self.bytes[self.len / 8] |= 0x80 >> (self.len % 8);
            }
            self.len += 1;
        }
    }

    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(u128::from(*byte), 8));
    }
}
