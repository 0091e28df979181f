//! What people and programs read: JSON lines, aligned tables, small plots for the terminal and larger ones as SVG, progress on
//! standard error.
//!
//! Nothing in here decides what is shown, only how. Text goes into `String`s and is written once per record, so that a
//! reader who closes the pipe early is noticed at the next record and not in the middle of one.

pub(crate) mod json;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod units;

pub(crate) use table::{Align, Table};
pub(crate) use terminal::Terminal;
