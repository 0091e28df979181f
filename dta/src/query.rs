//! The error type for invalid arguments of queries by key, shared by the readers of all DTA stores.

/// The reason why a query's arguments are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueryError {
    /// A key has 1 to 64 bytes.
    KeyLength,
    /// A query reads 1 to 4 copies.
    Copies,
    /// The output buffer is too short for the values.
    OutLength,
}

impl std::fmt::Display for QueryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::KeyLength => "a key has 1 to 64 bytes",
            Self::Copies => "a query reads 1 to 4 copies",
            Self::OutLength => "the output buffer is too short",
        })
    }
}

impl std::error::Error for QueryError {}
