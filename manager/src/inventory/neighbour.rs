//! Resolves a neighbour announced by LLDP (IEEE 802.1AB) to a port of the inventory.

use super::Inventory;
use crate::device::{NodeId, PortId};
use crate::driver::Neighbour;

/// The reason why a neighbour is not a known port of the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No device has this system name.
    System(String),
    /// The device has no such port.
    Port(NodeId, String),
}

impl Inventory {
    /// Returns the port that announced itself. The device is the one with the neighbour's system name, or with its first DNS
    /// label. The port is the one with the announced interface name or number.
    ///
    /// # Errors
    /// [`Unresolved`] if there is no such device or port.
    pub fn resolve(&self, neighbour: &Neighbour) -> Result<(NodeId, PortId), Unresolved> {
        let Neighbour { system, port } = neighbour;
        let label = system.split('.').next().unwrap_or_default();
        let node = self.node(system).or_else(|_| self.node(label));
        let node = node.map_err(|_| Unresolved::System(system.clone()))?;
        let named = self
            .ports(node)
            .find(|number| self.port_name((node, *number)) == Some(port.as_str()));
        let numbered = port
            .parse()
            .ok()
            .filter(|number| self.ports(node).any(|known| known == *number));
        let number = named
            .or(numbered)
            .ok_or_else(|| Unresolved::Port(node, port.clone()))?;
        Ok((node, number))
    }
}
