//! The profiles of sources and nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use collector::{Config, DistinctProfiles, Profile};
use testkit::reports::{Bench, Sent, config, flow, node};

/// More sources or nodes than a byte can number.
const MANY: u32 = 600;

fn with_latency_unit(latency_unit_ns: u32) -> Profile {
    Profile {
        latency_unit_ns,
        ..Profile::default()
    }
}

/// Returns the hop latency of the first node of a report from `source`.
fn latency(config: Config, source: [u8; 4], first: u32) -> Option<u64> {
    let mut bench = Bench::new(config);
    let sent = Sent {
        hops: vec![node(first), node(2)],
        ..Sent::default()
    };
    bench.deliver_from(&sent.v10(), source);
    let view = bench.collector.flow(&flow(1, false)).unwrap();
    view.hops().next().unwrap().hop_latency
}

#[test]
fn every_source_is_read_with_its_profile_however_many_there_are() {
    let plain = latency(config(), [10, 0, 0, 1], 1).unwrap();
    let prefix = |n: u32| format!("10.{}.{}.0/24", n / 256, n % 256).parse().unwrap();
    let many = || Config {
        profiles: (0..MANY).map(|n| (prefix(n), with_latency_unit(1000))).collect(),
        ..config()
    };
    for source in [[10, 0, 0, 1], [10, 0, 255, 1], [10, 2, 87, 1]] {
        assert_eq!(latency(many(), source, 1), Some(plain * 1000), "{source:?}");
    }
    assert_eq!(latency(many(), [10, 9, 9, 1], 1), Some(plain));
}

#[test]
fn every_node_has_its_units_however_many_there_are() {
    let plain = latency(config(), [10, 0, 0, 1], 1).unwrap();
    let many = || Config {
        node_profiles: (1..=MANY).map(|node| (node, with_latency_unit(1000))).collect(),
        ..config()
    };
    for node in [1, 255, 256, MANY] {
        assert_eq!(latency(many(), [10, 0, 0, 1], node), Some(plain * 1000), "{node}");
    }
    assert_eq!(latency(many(), [10, 0, 0, 1], MANY + 1), Some(plain));
}

#[test]
fn different_profiles_are_counted_once_and_bounded() {
    let default = Profile::default();
    let prefix = "10.0.0.0/8".parse().unwrap();
    let sources = |count: u32| -> Vec<_> {
        // Each twice, and the default profile under another name.
        let named = Profile::new("other", default.wire);
        (2..=count)
            .flat_map(|unit| [with_latency_unit(unit), with_latency_unit(unit)])
            .chain([named])
            .map(|profile| (prefix, profile))
            .collect()
    };
    let most = sources(DistinctProfiles::MAX as u32);
    let nodes = [(7, with_latency_unit(9))];
    let all = DistinctProfiles::of(&default, &most, &nodes).unwrap();
    let units: Vec<u32> = all.iter().map(|profile| profile.latency_unit_ns).collect();
    assert_eq!(units, (1..=256).collect::<Vec<_>>());
    let more = sources(DistinctProfiles::MAX as u32 + 1);
    assert!(DistinctProfiles::of(&default, &more, &[]).is_none());
    assert!(DistinctProfiles::of(&default, &most, &[(7, with_latency_unit(1_000_000))]).is_none());
}
