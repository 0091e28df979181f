//! Typed settings in a TOML file. A table is declared once with [`section!`]; reading, error locations, defaults, the dump,
//! reload and the reference page follow from the declaration.
//!
//! * [`setting`]: the trait of settings, and the macros that declare tables and choices
//! * [`read`]: reads a file and locates each problem
//! * [`values`]: numbers, durations, sizes, addresses; [`listen`]: inputs of reports; [`time`]: points in time
//! * [`json`]: settings from JSON; [`show`]: settings as TOML and JSON, and the reference page
//! * [`problems`]: reports inconsistent settings; [`remedy()`]: advice for I/O errors
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
