//! Rules for tests.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;

use detect::Metric;
use dta::{CollectorMap, collector_map::Collector};
use manager::device::{Encoding, Filter, FilterAlgorithm, L4Checksum, Mode, Rule, Rules, Watch};
use manager::flows::FlowMatch;

use super::dta_map;

/// An even map of these collectors.
pub fn map_of(names: &[&str]) -> CollectorMap {
    let collector = |(number, name): (u16, &&str)| Collector {
        name: (*name).to_owned(),
        api: format!("http://{name}:8080"),
        reports: Some(([127, 0, 0, 1], 40_040 + number).into()),
    };
    CollectorMap::even((0..).zip(names).map(collector).collect()).unwrap()
}

/// One rule of each kind, and of each form of a key.
pub fn every_rule() -> Rules {
    let key = FlowMatch {
        src: "10.0.0.0/8".parse().ok(),
        dst: "10.1.0.9".parse().ok(),
        sport: (1000, 2000),
        dport: (80, 80),
        proto: Some(6),
        dscp: None,
    };
    let watch = |key, mode| Watch {
        key,
        mode,
        bits: 0xf700,
        hops: 16,
        sample: 1,
        drops: true,
    };
    let v6 = FlowMatch {
        dst: "fd00::/16".parse().ok(),
        ..FlowMatch::default()
    };
    Rules::from([
        Rule::Encoding(Encoding {
            dscp: 9,
            l4_checksum: L4Checksum::Zero,
        }),
        Rule::Session("127.0.0.1:9555".parse().unwrap()),
        Rule::DtaMap(Arc::new(dta_map(&map_of(&["a", "b"])).unwrap())),
        Rule::Sink(1),
        Rule::Instruction(0),
        Rule::Instruction(2),
        Rule::Filter(Arc::new(Filter {
            key,
            algorithm: FilterAlgorithm::PerHop,
            metric: Metric::HopLatency,
            threshold: 20_000,
            rule: None,
        })),
        Rule::Filter(Arc::new(Filter {
            key: v6,
            algorithm: FilterAlgorithm::Rule,
            metric: Metric::FlowPath,
            threshold: 0,
            rule: Some("max(queue_occupancy) > 50 or loop".into()),
        })),
        Rule::Forwarding,
        Rule::Source(1),
        Rule::Watch(Arc::new(watch(key, Mode::Md))),
        Rule::Watch(Arc::new(watch(v6, Mode::Postcard))),
        Rule::Watch(Arc::new(watch(FlowMatch::default(), Mode::Mx))),
    ])
}
