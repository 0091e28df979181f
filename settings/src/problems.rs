//! Problems of settings that were read without errors but do not fit together.

/// Collects the problems of one table.
#[expect(missing_debug_implementations, reason = "it holds a closure")]
pub struct Problems<'a> {
    table: &'a [&'a str],
    refuse: &'a mut dyn FnMut(&[&str], String),
}

impl<'a> Problems<'a> {
    /// Passes problems on to `refuse`, each with the path of its key below `table` and a message.
    pub fn new(table: &'a [&'a str], refuse: &'a mut dyn FnMut(&[&str], String)) -> Self {
        Self { table, refuse }
    }

    /// Adds a problem of a key.
    pub fn add(&mut self, key: &str, message: impl Into<String>) {
        let path: Vec<&str> = self.table.iter().copied().chain([key]).collect();
        (self.refuse)(&path, message.into());
    }
}
