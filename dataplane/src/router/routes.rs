//! Routing table with longest prefix match.

use std::net::IpAddr;

use detect::Prefix;

use super::{Config, ConfigError};

/// A route. Several routes for one prefix share its traffic by flow (ECMP).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// Destination prefix of the route.
    pub to: Prefix,
    /// Number of the egress port.
    pub port: u16,
    /// Next router, on an edge port; `None` means that the destination is directly attached.
    pub via: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NextHop {
    /// Index of the port.
    pub(super) port: u16,
    pub(super) via: Option<IpAddr>,
}

/// The routing table: for each prefix length, longest first, the networks in order. A lookup is one binary search per length.
#[derive(Debug, Default)]
pub(super) struct Routes {
    v4: Vec<Length>,
    v6: Vec<Length>,
}

#[derive(Debug)]
struct Length {
    mask: u128,
    /// Network address, as IPv4-mapped IPv6 for IPv4, and its next hops.
    entries: Vec<(u128, Vec<NextHop>)>,
}

impl Routes {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let mut routes = Self::default();
        for route in &config.routes {
            let index = config.ports.iter().position(|port| port.number == route.port);
            let port = index.ok_or(ConfigError::NoSuchPort(route.port))? as u16;
            routes.add(route, NextHop { port, via: route.via });
        }
        Ok(routes)
    }

    fn add(&mut self, route: &Route, choice: NextHop) {
        let family = if route.to.is_v6() {
            &mut self.v6
        } else {
            &mut self.v4
        };
        let bits = u32::from(route.to.len()) + if route.to.is_v6() { 0 } else { 96 };
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let at = family.partition_point(|length| length.mask > mask);
        if family.get(at).is_none_or(|length| length.mask != mask) {
            family.insert(
                at,
                Length {
                    mask,
                    entries: Vec::new(),
                },
            );
        }
        let entries = &mut family[at].entries;
        let network = wide(route.to.network());
        match entries.binary_search_by_key(&network, |(network, _)| *network) {
            Ok(found) if entries[found].1.contains(&choice) => {}
            Ok(found) => entries[found].1.push(choice),
            Err(at) => entries.insert(at, (network, vec![choice])),
        }
    }

    /// Returns the next hops for `address`, by the longest prefix that matches.
    pub(super) fn find(&self, address: IpAddr) -> Option<&[NextHop]> {
        let family = if address.is_ipv6() { &self.v6 } else { &self.v4 };
        let bits = wide(address);
        family.iter().find_map(|length| {
            let found = length
                .entries
                .binary_search_by_key(&(bits & length.mask), |(network, _)| *network);
            found.ok().map(|at| length.entries[at].1.as_slice())
        })
    }

    /// Returns whether `address` is directly attached to the port with this index, without another router between them.
    pub(super) fn is_behind(&self, address: IpAddr, port: usize) -> bool {
        let choices = self.find(address).unwrap_or_default();
        choices
            .iter()
            .any(|choice| usize::from(choice.port) == port && choice.via.is_none())
    }
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    }
}
