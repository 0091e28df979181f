//! Packet path of one switch on one core, in process: from frames in memory to frames and reports in memory.

use testkit::workload::switch::{FLOWS, Task, Workload};

use super::harness::{Conditions, Failure, Outcome, Plan, measure};
use terminal::CliError;

/// Bursts per clock reading.
const BURSTS: u32 = 20;

/// `switch-…`: one packet through one switch, of UDP over IPv4, marked by DSCP, with node id, interfaces, latency, queue, both
/// timestamps and utilization.
pub(super) fn run(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let Some((_, task)) = Task::ALL.into_iter().find(|(task, _)| *task == name) else {
        let what = format!("the switch has no workload `{name}`; this is a bug");
        return Err(CliError::new(what).into());
    };
    let mut workload = Workload::new(task, false).map_err(|error| CliError::new(error.to_string()))?;
    let mut packets = workload.burst();
    let measured = measure(plan, || {
        let done: u64 = (0..BURSTS).map(|_| workload.burst()).sum();
        packets += done;
        Ok(done)
    })?;
    if !workload.holds(packets) {
        return Err(CliError::new("the switch did not process every packet as expected").into());
    }
    let included = "a copy of the frame into the switch's buffer, parsing, table and register look-ups, record, lengths \
                    and checksums, report where there is one; no I/O";
    let conditions = Conditions::of("one packet", included)
        .number("flows", FLOWS)
        .number("items_per_record", 7)
        .number("frame_bytes", workload.frame_bytes())
        .on_core(&measured);
    Ok(Outcome::new(name, measured.ns_per_op, conditions))
}
