//! Benchmark of one switch: cost per packet on one core, in process, for the tasks of `hopwise bench switch-…`, over both IP
//! versions. An argument selects cases by part of their names.

use std::hint::black_box;
use std::time::Instant;

use testkit::workload::switch::{Task, Workload};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Measurements per task, and bursts per measurement.
    const ROUNDS: usize = 200;
    const BURSTS: u32 = 40;
    let wanted = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .unwrap_or_default();
    for (name, task) in Task::ALL.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        for v6 in [false, true] {
            let mut workload = Workload::new(task, v6)?;
            let mut costs: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let begin = Instant::now();
                    let packets: u64 = (0..BURSTS).map(|_| black_box(workload.burst())).sum();
                    begin.elapsed().as_secs_f64() * 1e9 / packets as f64
                })
                .collect();
            costs.sort_by(f64::total_cmp);
            let ip = if v6 { "IPv6" } else { "IPv4" };
            println!(
                "{name:<20} {ip}  {:>4} bytes  min {:>6.1} ns  median {:>6.1} ns",
                workload.frame_bytes(),
                costs[0],
                costs[ROUNDS / 2]
            );
        }
    }
    Ok(())
}
