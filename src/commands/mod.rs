//! One file per command: its arguments and what it does.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod decode;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod generate;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod top;
