//! Reports settings that are individually valid but inconsistent with each other.

/// Reporter of problems in one table.
#[expect(missing_debug_implementations, reason = "it holds a closure")]
pub struct Problems<'a> {
    table: &'a [&'a str],
    refuse: &'a mut dyn FnMut(&[&str], String),
}

impl<'a> Problems<'a> {
    /// Creates a reporter that passes each problem to `refuse`, with the path of its key below `table` and a message.
    pub fn new(table: &'a [&'a str], refuse: &'a mut dyn FnMut(&[&str], String)) -> Self {
        Self { table, refuse }
    }

    /// Reports a problem of a key.
    pub fn add(&mut self, key: &str, message: impl Into<String>) {
        let path: Vec<&str> = self.table.iter().copied().chain([key]).collect();
        (self.refuse)(&path, message.into());
    }
}
