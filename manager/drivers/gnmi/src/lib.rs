//! Driver for devices configured by gNMI. A [`PathMap`] translates rules into objects; each request is one Set transaction.
//!
//! The objects of a rule are defined by data, because the schemas of vendors and SONiC differ. Facts about ports come from the
//! OpenConfig models of interfaces and LLDP.
//!
//! The driver contract of [`manager::device`]:
//! - **Fencing** uses gNMI's master arbitration with the manager's election. A device that ignores it is rejected, unless its
//!   map says that this manager is the only one.
//! - **Truth**: lists are read from the device. An object that another writer modified still counts as present if it may
//!   insert INT, but not if it removes INT.
#![forbid(unsafe_code)]

pub mod client;
mod config_db;
mod driver;
mod facts;
mod map;
pub mod message;
mod objects;
pub mod path;
mod tree;

pub use self::client::Peer;
pub use self::driver::{Driver, Settings};
pub use self::facts::facts;
pub use self::map::{PathMap, SHIPPED, shipped};
pub use self::objects::{DeviceObjects, Entry};
pub use self::tree::Tree;
