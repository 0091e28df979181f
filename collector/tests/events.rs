//! What is told, and when: traces in, lines of text out.

mod support;

use support::{Bench, Sent, config, node};

#[test]
fn a_new_flow_tells_its_path_its_latency_and_every_key() {
    let mut bench = Bench::new(config());
    bench.send(&Sent::default());
    assert_eq!(
        bench.heard(),
        "new flow_path flow=1 3 path=1>2>3\n\
         new hop_latency flow=1 node=1 1000\n\
         new link_utilization node=1 if=2 500\n\
         new queue_occupancy node=1 queue=0 10\n\
         new hop_latency flow=1 node=2 1000\n\
         new link_utilization node=2 if=2 500\n\
         new queue_occupancy node=2 queue=0 10\n\
         new hop_latency flow=1 node=3 1000\n\
         new link_utilization node=3 if=2 500\n\
         new queue_occupancy node=3 queue=0 10\n\
         new flow_latency flow=1 3000 HopSum\n"
    );
    bench.send(&Sent::default());
    assert_eq!(bench.heard(), "");
    bench.send(&Sent { flow: 2, ..Sent::default() });
    assert_eq!(
        bench.heard(),
        "new flow_path flow=2 3 path=1>2>3\n\
         new hop_latency flow=2 node=1 1000\n\
         new hop_latency flow=2 node=2 1000\n\
         new hop_latency flow=2 node=3 1000\n\
         new flow_latency flow=2 3000 HopSum\n"
    );
    let _ = node(1);
}
