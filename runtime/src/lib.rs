//! Parts that every role uses: threads that end the program when they die, messages to the main thread, and files that are replaced as a whole.
#![forbid(unsafe_code)]

pub mod control;
pub mod host;
pub mod intercept;
pub mod lock;
pub mod notify;
pub mod save;
