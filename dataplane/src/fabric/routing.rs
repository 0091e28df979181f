//! Routing of the fabric: shortest paths over the links that are up, with ECMP by flow hash.

use std::collections::VecDeque;

use super::random::mix;

/// A link as seen from one of its nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The node at the other end.
    pub(crate) peer: usize,
    /// Index of the port in the fabric.
    pub(crate) port: u32,
    /// True if the link is up in both directions.
    pub(crate) up: bool,
}

/// The ports on shortest paths, for each node and destination host.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    choices: Vec<Vec<Vec<u32>>>,
    /// Index of each host in the second level of `choices`, by node.
    column: Vec<Option<usize>>,
}

impl Routes {
    /// Computes all routes. `edges[n]` are the ports of node `n`. Only switches forward.
    pub(crate) fn compute(edges: &[Vec<Edge>], is_host: &[bool]) -> Self {
        let mut column = vec![None; edges.len()];
        let hosts: Vec<usize> = (0..edges.len()).filter(|&node| is_host[node]).collect();
        // A host has a single port and needs no routes.
        let mut choices: Vec<Vec<Vec<u32>>> = is_host
            .iter()
            .map(|is_host| {
                if *is_host {
                    Vec::new()
                } else {
                    vec![Vec::new(); hosts.len()]
                }
            })
            .collect();
        for (at, &host) in hosts.iter().enumerate() {
            column[host] = Some(at);
            let distance = distances(edges, is_host, host);
            for (node, ports) in edges.iter().enumerate() {
                if is_host[node] || distance[node] == u32::MAX {
                    continue;
                }
                let closer = ports
                    .iter()
                    .filter(|edge| edge.up && distance[edge.peer] < distance[node]);
                choices[node][at] = closer.map(|edge| edge.port).collect();
            }
        }
        Self { choices, column }
    }

    /// Returns the egress port of switch `node` towards `host` for the flow with `hash`, or `None` without a route.
    ///
    /// Uses highest random weight (rendezvous) hashing: if one of the choices disappears, only its flows move.
    pub(crate) fn next(&self, node: usize, host: usize, hash: u64) -> Option<u32> {
        let ports = &self.choices[node][self.column[host]?];
        match ports.as_slice() {
            [] => None,
            [port] => Some(*port),
            _ => ports
                .iter()
                .copied()
                .max_by_key(|&port| (mix(hash, u64::from(port)), port)),
        }
    }
}

/// Returns the number of hops from every node to `host`, `u32::MAX` without a route. Other hosts do not forward.
fn distances(edges: &[Vec<Edge>], is_host: &[bool], host: usize) -> Vec<u32> {
    let mut distance = vec![u32::MAX; edges.len()];
    distance[host] = 0;
    let mut queue = VecDeque::from([host]);
    while let Some(node) = queue.pop_front() {
        if is_host[node] && node != host {
            continue;
        }
        for edge in edges[node].iter().filter(|edge| edge.up) {
            if distance[edge.peer] == u32::MAX {
                distance[edge.peer] = distance[node] + 1;
                queue.push_back(edge.peer);
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes 0 and 1 are hosts below switches 2 and 3, which two spines 4 and 5 connect. Ports are numbered in order.
    fn square(cut: Option<(usize, usize)>) -> (Vec<Vec<Edge>>, Vec<bool>) {
        let links = [(2, 0), (3, 1), (2, 4), (2, 5), (3, 4), (3, 5)];
        let mut edges = vec![Vec::new(); 6];
        for (at, &(a, b)) in links.iter().enumerate() {
            let up = cut != Some((a, b));
            edges[a].push(Edge {
                peer: b,
                port: at as u32 * 2,
                up,
            });
            edges[b].push(Edge {
                peer: a,
                port: at as u32 * 2 + 1,
                up,
            });
        }
        (edges, vec![true, true, false, false, false, false])
    }

    #[test]
    fn equal_paths_are_all_used_and_a_flow_keeps_its_own() {
        let (edges, hosts) = square(None);
        let routes = Routes::compute(&edges, &hosts);
        let mut counts = [0u32; 16];
        for flow in 0..1000u64 {
            let port = routes.next(2, 1, mix(flow, 0)).unwrap();
            assert_eq!(routes.next(2, 1, mix(flow, 0)), Some(port));
            counts[port as usize] += 1;
        }
        assert_eq!(counts.iter().filter(|&&n| n > 0).count(), 2);
        assert!(
            (450..550).contains(&counts[4]) && counts[4] + counts[6] == 1000,
            "{counts:?}"
        );
        assert_eq!((routes.next(4, 1, 5), routes.next(3, 1, 5)), (Some(9), Some(2)));
    }

    #[test]
    fn only_flows_of_a_lost_path_are_rerouted() {
        let before = {
            let (edges, hosts) = square(None);
            Routes::compute(&edges, &hosts)
        };
        let after = {
            let (edges, hosts) = square(Some((2, 4)));
            Routes::compute(&edges, &hosts)
        };
        for flow in 0..200u64 {
            assert_eq!(after.next(2, 1, flow), Some(6));
            let (old, new) = (before.next(3, 0, flow), after.next(3, 0, flow));
            assert!(old == new || old == Some(8) && new == Some(10), "{old:?} {new:?}");
        }
    }

    #[test]
    fn without_a_path_there_is_no_route() {
        let (edges, hosts) = square(Some((3, 1)));
        let routes = Routes::compute(&edges, &hosts);
        assert_eq!(routes.next(2, 1, 1), None);
        assert!(routes.next(3, 0, 1).is_some());
    }
}
