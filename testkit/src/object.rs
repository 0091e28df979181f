//! A writer for JSON objects with their keys in a fixed order, which the test vectors compare as text.

use std::fmt::Write;
use wire::{FlowKey, Refusal};

/// A JSON object under construction.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    /// Adds a key with a value that is already JSON.
    pub(crate) fn raw(&mut self, key: &str, value: &str) {
        let comma = if self.0.len() > 1 { "," } else { "" };
        write!(self.0, "{comma}\"{key}\":{value}").expect("a string takes all");
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &format!("\"{value}\""));
    }

    pub(crate) fn number(&mut self, key: &str, value: impl Into<u64>) {
        self.raw(key, &value.into().to_string());
    }

    pub(crate) fn nullable<T: Into<u64>>(&mut self, key: &str, value: Option<T>) {
        match value {
            Some(value) => self.number(key, value),
            None => self.raw(key, "null"),
        }
    }

    pub(crate) fn list(&mut self, key: &str, items: impl Iterator<Item = impl ToString>) {
        let items: Vec<_> = items.map(|item| item.to_string()).collect();
        self.raw(key, &format!("[{}]", items.join(",")));
    }

    /// Adds a 5-tuple; nothing if there is none.
    pub(crate) fn flow(&mut self, key: &str, flow: Option<FlowKey>) {
        let Some(flow) = flow else { return };
        let mut inner = Self::new();
        inner.text("src", &flow.src().to_string());
        inner.text("dst", &flow.dst().to_string());
        if let Some((src_port, dst_port)) = flow.ports() {
            inner.number("sport", src_port);
            inner.number("dport", dst_port);
        }
        inner.number("proto", flow.proto());
        self.raw(key, &inner.finish());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns the line for bytes that a decoder refuses.
pub(crate) fn error(refusal: Refusal) -> String {
    format!("{{\"error\":\"{}\"}}", refusal.name())
}
