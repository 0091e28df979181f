//! References to header fields, by index instead of by name.

/// A field of a header instance: the index of the instance in the program, and the index of the field in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) header: usize,
    pub(crate) field: usize,
}

/// The index that stands for the pseudo field `$valid$`, which is 1 while the header is valid.
pub(crate) const VALID: usize = usize::MAX;
