//! Contents of PINT reports: PINT's static per-flow aggregation, as Table 2 of the DTA paper maps it. A report has one byte
//! about one hop of the path, and the packet selects the hop.
//!
//! n = f(packet) is less than a number K, and selects both the hop and the hash of that hop's id. So a query for a flow's K
//! bytes knows what each of them encodes, and can identify the path among the network's nodes. The keys of the reports are
//! (flow, n): all copies of one DTA key have the same value, so the paper's redundancies are different keys here.

use super::context::Context;

/// Returns n of a packet, less than `count`. `packet` is any number that differs between packets.
pub fn n(packet: u32, count: u8) -> u8 {
    ((u64::from(packet) * u64::from(count)) >> 32) as u8
}

/// Returns n of a packet. Includes the ingress timestamp, because not every sender numbers its packets.
pub(super) fn n_of(context: &Context<'_>, count: u8) -> u8 {
    let came = context
        .metadata
        .and_then(|metadata| metadata.ingress_ts)
        .unwrap_or(0);
    n(mix(u64::from(context.packet.id) << 32 ^ came) as u32, count)
}

/// Returns the hop of a path of `hops` nodes that is reported under `n`, from 0. Each node decides without knowing how many
/// follow: the i-th replaces the value with probability 1/i, and the last one that does so is reported (reservoir sampling). So
/// all nodes are equally likely.
pub fn hop(n: u8, hops: usize) -> Option<usize> {
    (0..hops as u64)
        .rev()
        .find(|i| mix(u64::from(n) << 32 | *i).is_multiple_of(*i + 1))
        .map(|i| i as usize)
}

/// Returns the byte that encodes `node` under `n`.
pub fn digest(node: u32, n: u8) -> u8 {
    (mix(u64::from(n) << 40 | 1 << 39 | u64::from(node)) >> 56) as u8
}

/// Returns the digest of the selected hop, or `None` if it is unknown.
pub(super) fn digest_of(context: &Context<'_>, count: u8) -> Option<u8> {
    let n = n_of(context, count);
    let node = context.node_of(hop(n, context.hops())?)?;
    Some(digest(node, n))
}

/// Returns an unseeded hash, because reporter and reader must compute the same one.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let value = (value ^ value >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
    value ^ value >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hop_is_reported_about_equally_often() {
        for hops in 1..=8_usize {
            let mut reported = [0; 8];
            (0..=254).for_each(|n| reported[hop(n, hops).unwrap()] += 1);
            let least = reported[..hops].iter().min().unwrap();
            assert!(*least * hops * 2 > 255, "{hops}: {reported:?}");
            assert_eq!(reported[hops..].iter().sum::<usize>(), 0);
        }
        assert_eq!(hop(3, 0), None);
    }

    #[test]
    fn n_is_spread_over_its_range() {
        let mut seen = [0; 5];
        (0..1000).for_each(|i: u32| seen[usize::from(n(i.wrapping_mul(0x9e37_79b9), 5))] += 1);
        assert!(seen.iter().all(|count| (150..250).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_path_is_found_again_among_the_networks_nodes() {
        let (path, network) = ([11, 12, 13, 14, 15], 1..=60_u32);
        let reported = |n: u8| digest(path[hop(n, path.len()).unwrap()], n);
        for (position, node) in path.iter().enumerate() {
            let candidates = network.clone().filter(|candidate| {
                (0..64).all(|n| hop(n, path.len()) != Some(position) || digest(*candidate, n) == reported(n))
            });
            assert_eq!(candidates.collect::<Vec<_>>(), [*node]);
        }
    }
}
