//! An interpreter for P4_16 programs of the v1model architecture, compiled to JSON by `p4c-bm2-ss`.
//!
//! It is a model for tests: packets, times and queue depths go in, packets come out, and nothing depends on the machine. It
//! supports the language features that this project's programs use; loading a program with any other feature fails with an
//! error that names it. Semantics follow BMv2: its JSON format 2.x (`JSON_format.md`) and its target `simple_switch`.
//!
//! ```no_run
//! # fn main() -> Result<(), p4_model::Error> {
//! let program = p4_model::Program::read(&std::fs::read_to_string("int.json").unwrap())?;
//! let mut switch = p4_model::Switch::new(program);
//! let sent = switch.process(&[0; 60], &p4_model::Arrival { port: 1, ..Default::default() });
//! assert!(sent.is_empty());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod checksum;
mod expression;
mod field;
mod load;
mod packet;
mod program;
mod switch;
mod table;

pub use load::Error;
pub use program::Program;
pub use switch::{Arrival, Sent, Switch};
pub use table::{Entry, Key};
