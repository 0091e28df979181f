//! Shortest-path routes: at every switch, the ports that are one link closer to the destination (breadth-first search from
//! the destination). Each hop reduces the distance, so packets never loop, even if the network has cycles.

use std::{collections::VecDeque, net::IpAddr};

use super::topology::{Node, Topology, attached_switch};

/// Route to an address over one or more ports (ECMP); each flow uses one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    /// Destination address, that of a host.
    pub(crate) to: IpAddr,
    /// Numbers of the equal-cost ports, ascending.
    pub(crate) ports: Vec<u16>,
}

/// Returns the distance in links from each switch to the switch of a host, avoiding the links `avoided`; `None` without a
/// path.
pub(crate) fn distances(topology: &Topology, host: usize, avoided: &[usize]) -> Vec<Option<usize>> {
    let mut distances = vec![None; topology.switches.len()];
    let Some(host) = topology.hosts.get(host) else {
        return distances;
    };
    let origin = attached_switch(topology, host);
    let Some(distance) = distances.get_mut(origin) else {
        return distances;
    };
    *distance = Some(0);
    let mut queue = VecDeque::from([(origin, 0)]);
    while let Some((switch, distance)) = queue.pop_front() {
        for port in &topology.switches[switch].ports {
            if let Node::Switch(next) = port.peer
                && !avoided.contains(&port.link)
                && distances[next].is_none()
            {
                distances[next] = Some(distance + 1);
                queue.push_back((next, distance + 1));
            }
        }
    }
    distances
}

/// Returns the routes of a switch to every host address, avoiding the links `avoided`. If there is no other path, the route
/// uses the closed link, so that packets are lost there and not elsewhere.
pub(crate) fn routes(topology: &Topology, switch: usize, avoided: &[usize]) -> Vec<Route> {
    let mut routes = Vec::new();
    for (index, host) in topology.hosts.iter().enumerate() {
        let detours = distances(topology, index, avoided);
        // No loop: all switches on this shortest path up to the closed link have no detour either, or the packet could take
        // it from here.
        let (distances, avoided) = if detours[switch].is_some() {
            (detours, avoided)
        } else {
            (distances(topology, index, &[]), &[][..])
        };
        let ports: Vec<u16> = topology.switches[switch]
            .ports
            .iter()
            .filter(|port| match port.peer {
                Node::Host(peer) => peer == index,
                Node::Switch(peer) => {
                    !avoided.contains(&port.link)
                        && distances[peer].is_some_and(|next| Some(next + 1) == distances[switch])
                }
            })
            .map(|port| port.number)
            .collect();
        routes.extend(host.addresses.iter().map(|address| Route {
            to: address.ip,
            ports: ports.clone(),
        }));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts h0, h1, … at the given switches, and links between switches.
    fn network(switches: usize, hosts: &[usize], links: &[(usize, usize)]) -> Topology {
        let mut text = "name = \"t\"\n[collector]\n".to_owned();
        for switch in 0..switches {
            text += &format!("[[switches]]\nname = \"s{switch}\"\n");
        }
        for (host, switch) in hosts.iter().enumerate() {
            text += &format!(
                "[[hosts]]\nname = \"h{host}\"\naddress = \"10.0.0.{}\"\n",
                host + 1
            );
            text += &format!("[[links]]\nbetween = [\"h{host}\", \"s{switch}\"]\n");
        }
        for (a, b) in links {
            text += &format!("[[links]]\nbetween = [\"s{a}\", \"s{b}\"]\n");
        }
        crate::load::parse_example(&text)
    }

    /// Follows every path from one host to another; returns the number of switches on each.
    fn lengths(topology: &Topology, from: usize, to: usize) -> Vec<usize> {
        paths(topology, from, to, &[]).0
    }

    /// The same with some links cut, and the number of paths that end at a cut link.
    fn paths(topology: &Topology, from: usize, to: usize, cut: &[usize]) -> (Vec<usize>, usize) {
        let target = topology.hosts[to].addresses[0].ip;
        let (mut found, mut lost) = (Vec::new(), 0);
        let mut queue = vec![(attached_switch(topology, &topology.hosts[from]), 1)];
        while let Some((switch, passed)) = queue.pop() {
            assert!(
                passed <= topology.switches.len(),
                "a packet passes a switch twice"
            );
            let route = routes(topology, switch, cut)
                .into_iter()
                .find(|route| route.to == target)
                .unwrap();
            assert!(!route.ports.is_empty(), "a packet gets stuck");
            for port in route.ports {
                let port = topology.switches[switch].ports[usize::from(port) - 1];
                match port.peer {
                    _ if cut.contains(&port.link) => lost += 1,
                    Node::Host(host) => {
                        assert_eq!(host, to);
                        found.push(passed);
                    }
                    Node::Switch(next) => queue.push((next, passed + 1)),
                }
            }
        }
        (found, lost)
    }

    #[test]
    fn a_ring_uses_the_shorter_path_and_both_when_equal() {
        let ring = network(4, &[0, 1, 2, 3], &[(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(lengths(&ring, 0, 1), [2]);
        assert_eq!(lengths(&ring, 0, 2), [3, 3]);
        assert_eq!(lengths(&ring, 0, 3), [2]);
    }

    #[test]
    fn parallel_links_and_spines_share_the_load() {
        let parallel = network(2, &[0, 1], &[(0, 1), (0, 1), (1, 0)]);
        assert_eq!(lengths(&parallel, 0, 1), [2, 2, 2]);
        let fabric = network(5, &[0, 1, 2], &[(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)]);
        for (from, to) in [(0, 1), (1, 0), (2, 0), (1, 2)] {
            assert_eq!(lengths(&fabric, from, to), [3, 3]);
        }
    }

    #[test]
    fn packets_never_loop_in_any_network() {
        // Every graph of five switches, by the bits of a number: those that are not connected are refused.
        let pairs: Vec<(usize, usize)> = (0..5).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let mut connected = 0;
        for graph in 0..1_u32 << pairs.len() {
            let links: Vec<_> = pairs
                .iter()
                .enumerate()
                .filter(|(bit, _)| graph >> bit & 1 == 1)
                .map(|(_, pair)| *pair)
                .collect();
            if !reaches_all(5, &links) {
                continue;
            }
            connected += 1;
            let network = network(5, &[0, 4], &links);
            let (there, back) = (lengths(&network, 0, 1), lengths(&network, 1, 0));
            let shortest = distances(&network, 1, &[])[0].unwrap() + 1;
            assert!(
                there.iter().chain(&back).all(|length| *length == shortest),
                "{links:?}"
            );
            assert_eq!(there.len(), back.len(), "{links:?}");
            // With one link cut, all packets avoid it, or are lost there if there is no other path.
            for cut in (0..network.links.len()).filter(|link| link_is_inner(&network, *link)) {
                let (round, lost) = paths(&network, 0, 1, &[cut]);
                assert_ne!(round.is_empty(), lost == 0, "{links:?} without {cut}");
            }
        }
        // The number of connected labelled graphs on five vertices (OEIS A001187).
        assert_eq!(connected, 728);
    }

    fn link_is_inner(network: &Topology, link: usize) -> bool {
        network.links[link]
            .ends
            .iter()
            .all(|end| matches!(end, Node::Switch(_)))
    }

    fn reaches_all(nodes: usize, links: &[(usize, usize)]) -> bool {
        let mut seen = vec![0];
        let mut switch = 0;
        while let Some(node) = seen.get(switch).copied() {
            let next = links
                .iter()
                .filter_map(|(a, b)| (*a == node).then_some(*b).or((*b == node).then_some(*a)));
            let next: Vec<usize> = next.filter(|next| !seen.contains(next)).collect();
            for next in next {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
            switch += 1;
        }
        seen.len() == nodes
    }
}
