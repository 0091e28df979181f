//! Cases `switch-transit`, `switch-sf-transit` and `switch-sink`: one switch on one core, from frames to frames and reports.

use testkit::workload::switch::{FLOWS, Task, Workload};

use super::harness::{Conditions, Failure, Outcome, Plan, measure, workload};
use experiments::figures::failed;
use terminal::CliError;

/// Bursts per clock reading.
const BURSTS: u32 = 20;

/// Measures one UDP/IPv4 packet in one switch, with INT marked by DSCP and seven items (ID, interfaces, latency, queue, …).
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let (_, task) = workload(Task::ALL, name, |task| task.0)?;
    let mut switch = Workload::new(task, false).map_err(failed)?;
    let mut packets = switch.burst();
    let measured = measure(plan, || {
        let done: u64 = (0..BURSTS).map(|_| switch.burst()).sum();
        packets += done;
        Ok(done)
    })?;
    if !switch.holds(packets) {
        return Err(CliError::new("the switch did not process every packet as expected").into());
    }
    let included = "a copy of the frame into the switch's buffer, parsing, table and register look-ups, record, lengths \
                    and checksums, report where there is one; no I/O";
    let conditions = Conditions::of("one packet", included)
        .number("flows", FLOWS)
        .number("items_per_record", 7)
        .number("frame_bytes", switch.frame_bytes());
    Ok(Outcome::measured(name, measured, conditions))
}
