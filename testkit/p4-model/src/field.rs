//! Fields of headers, by number.

/// A field: a header instance, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) header: usize,
    pub(crate) field: usize,
}

/// The place of the pseudo field `$valid$`.
pub(crate) const VALID: usize = usize::MAX;
