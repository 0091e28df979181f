//! Settings of a TOML file: declared once, read with every problem located, shown, and explained in a manual.
//!
//! [`read`] locates problems; [`setting`] has the trait of settings and the macros that declare tables and choices; [`values`] has the
//! plain values: numbers, durations, sizes, addresses; [`listen`] has inputs of reports; [`json`] reads settings from JSON; [`show`] writes settings as TOML and JSON, and the reference page;
//! [`problems`] collects what does not fit together; [`time`] reads points in time; [`remedy()`] advises on errors of the system.
//!
//! # Example
//! ```
//! use settings::read::Reader;
//! use settings::setting::{Setting, tables};
//!
//! settings::section! {
//!     /// The API.
//!     struct Api("[api]") {
//!         /// Where the API listens.
//!         pub(crate) listen: String = "127.0.0.1:8080".to_owned(),
//!         /// Connections at most.
//!         [live] pub(crate) connections: u32 = 64,
//!     }
//! }
//!
//! let mut reader = Reader::new("connections = 8");
//! let api = reader.parse(tables::<Api>).and_then(|node| Api::read(&node, &mut reader)).ok_or("not a table")?;
//! assert!(reader.has_no_problems());
//! assert_eq!((api.listen.as_str(), api.connections), ("127.0.0.1:8080", 8));
//!
//! // Each problem is located, with advice.
//! let mut reader = Reader::new("conections = 8");
//! let _ = reader.parse(tables::<Api>).and_then(|node| Api::read(&node, &mut reader));
//! let error = reader.finish("hopwise.toml").unwrap_err().to_string();
//! assert!(error.starts_with("hopwise.toml:1:1: there is no key `conections` in [api]; did you mean `connections`?"));
//! # Ok::<(), &str>(())
//! ```
#![forbid(unsafe_code)]

pub mod json;
pub mod listen;
pub mod problems;
mod quote;
pub mod read;
mod remedy;
pub mod setting;
pub mod show;
pub mod time;
mod tree;
pub mod values;

pub use remedy::remedy;
