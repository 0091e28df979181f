//! The driver of devices that are configured by gNMI: rules become objects at paths by a [`PathMap`], in one transaction each.
//!
//! The objects of a rule are data: the schemas of vendors and of SONiC differ. Facts about ports are read from OpenConfig
//! interfaces and LLDP.
//!
//! - **Fencing** is gNMI's master arbitration, whose election is that of the manager. A device that ignores it is refused, unless its
//!   map says that this manager is the only one.
//! - **Truth.** Lists are read from the device. An object that another writer changed counts if it may insert INT, and not if it removes it.
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
