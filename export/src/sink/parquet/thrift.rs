//! Writer for Thrift's compact protocol, as far as Parquet's metadata needs it.
//!
//! <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>

use crate::protobuf::varint;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
pub(super) const I32: u8 = 5;
const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Writes a struct. Fields must be in ascending order of their IDs.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Last field ID of each open struct: IDs are delta-encoded.
    last: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Starts the outermost struct.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: vec![0] }
    }

    fn field(&mut self, number: u8, kind: u8) {
        if let Some(last) = self.last.last_mut() {
            // IDs are below 16, so the delta fits in four bits.
            self.out.push(number.wrapping_sub(*last) << 4 | kind);
            *last = number;
        }
    }

    /// Writes a non-negative number; its zigzag encoding is twice the number.
    pub(super) fn number(&mut self, number: u64) {
        varint(number << 1, self.out);
    }

    pub(super) fn i32(&mut self, field: u8, number: u32) {
        self.field(field, I32);
        self.number(number.into());
    }

    pub(super) fn i64(&mut self, field: u8, number: u64) {
        self.field(field, I64);
        self.number(number);
    }

    pub(super) fn byte(&mut self, field: u8, byte: u8) {
        self.field(field, BYTE);
        self.out.push(byte);
    }

    pub(super) fn bool(&mut self, field: u8, value: bool) {
        self.field(field, if value { TRUE } else { FALSE });
    }

    pub(super) fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.field(field, BINARY);
        self.element(bytes);
    }

    /// Writes an element of a list of strings.
    pub(super) fn element(&mut self, bytes: &[u8]) {
        varint(bytes.len() as u64, self.out);
        self.out.extend_from_slice(bytes);
    }

    /// Starts a list field of `len` elements.
    pub(super) fn list(&mut self, field: u8, kind: u8, len: usize) {
        self.field(field, LIST);
        match len {
            0..15 => self.out.push((len as u8) << 4 | kind),
            _ => {
                self.out.push(0xf0 | kind);
                varint(len as u64, self.out);
            }
        }
    }

    /// Starts a struct as a list element.
    pub(super) fn begin(&mut self) {
        self.last.push(0);
    }

    /// Starts a struct in a field.
    pub(super) fn begin_field(&mut self, field: u8) {
        self.field(field, STRUCT);
        self.begin();
    }

    /// Ends the innermost struct.
    pub(super) fn end(&mut self) {
        self.out.push(0);
        self.last.pop();
    }
}
