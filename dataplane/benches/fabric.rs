//! Benchmark of the simulated fabric: the time to simulate a million packets through twenty switches; and the packets per
//! second of one core if each packet passes three switches with INT-MD 2.1 and causes a Report 2.0 at the sink. Run `cargo
//! bench -p hopwise-dataplane`; it takes about two seconds.

use std::time::Instant;

use dataplane::{Config, Fabric, FabricSink, FlowSpec, Pattern, Reporter, Topology, Watch};

#[derive(Default)]
struct Count {
    reports: u64,
    bytes: u64,
}

impl FabricSink for Count {
    fn report(&mut self, _t: u64, _from: &Reporter, payload: &[u8]) {
        self.reports += 1;
        self.bytes += payload.len() as u64;
    }
}

fn main() {
    const PACKETS: u64 = 1_000_000;
    let began = Instant::now();
    let done = testkit::workload::switch::simulate(PACKETS).expect("a good topology");
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} packets over {} hops through 20 switches in {seconds:.3} s",
        done.packets, done.hops
    );
    let topology = Topology::leaf_spine(4, 2, 4, dataplane::fabric::Wire::default()).expect("a valid shape");
    let config = Config {
        watchlist: Watch::default().into(),
        ..Config::default()
    };
    let mut fabric = Fabric::new(topology, config, 1).expect("a valid configuration");
    for at in 0..400u16 {
        // To the host four positions later, which is below another leaf, so the path goes through a spine.
        let (from, to) = (
            10_001 + u32::from(at % 16),
            10_001 + u32::from((at % 16 + 4) % 16),
        );
        let spec = FlowSpec {
            payload: 300,
            pattern: Pattern::poisson(1_000),
            ..FlowSpec::new(from, to, at, 80)
        };
        fabric.add_flow(&spec).expect("hosts that are there");
    }
    for round in 1..=4u64 {
        let (mut count, began) = (Count::default(), Instant::now());
        fabric.run_until(round * 1_000_000_000, &mut count);
        let seconds = began.elapsed().as_secs_f64();
        let rate = count.reports as f64 / seconds / 1000.0;
        let size = count.bytes / count.reports.max(1);
        println!(
            "{:>7} reports of {size} bytes in {seconds:.3} s: {rate:.0} thousand packets/s",
            count.reports
        );
    }
}
