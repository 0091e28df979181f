//! Cases `rdma-xdp-…`: time per WRITE of the RoCEv2 responder in XDP, by `BPF_PROG_TEST_RUN` with the same frame each time.

use std::net::Ipv4Addr;

use rdma::responder::{AccessFlags, QueuePairConfig, Registered};
use testkit::workload::rdma::{CASES, Case};
use wire::roce::{Head, MAX_FRAME, Path, Psn, Reth, Transport, Writer};
use xdp::rdma::{Options, Rdma};

use super::harness::{Conditions, Failure, Outcome, Plan, workload};
use super::kernel;
use experiments::figures::{failed, unwritten};
use terminal::CliError;

/// Bytes of the memory region.
const MEMORY: u64 = 16 << 20;
/// Queue pair number, and R_Key of the region.
const QUEUE_PAIR: u32 = 0x0000_1001;
const RKEY: u32 = 0x001f_4201;
/// Minimum number of packets per run, because each run has a fixed overhead of some milliseconds.
const MIN_PACKETS: u32 = 200_000;

pub(super) fn respond(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let case = workload(CASES, &name.replace("-xdp", ""), |case| case.name)?;
    let mut rdma = Rdma::load(&Options {
        memory: MEMORY,
        ..Options::default()
    })
    .map_err(|error| Failure::needs("permission to load BPF programs", error))?;
    let frame = frame(&mut rdma, case)?;
    // Estimates 100 ns per packet.
    let packets = u32::try_from(plan.each.as_nanos() / 100)
        .unwrap_or(u32::MAX)
        .max(MIN_PACKETS);
    let object = rdma.object();
    let mut times = Vec::new();
    for run in 0..=plan.runs {
        let ns = kernel::run(object, Rdma::PROGRAM, &frame, packets, None)?;
        // The first run is the warm-up.
        if run > 0 {
            times.push(ns);
        }
    }
    let counters = rdma.counted().map_err(failed)?;
    let expected = u64::from(packets) * (u64::from(plan.runs) + 1);
    if !counters.is_balanced() || counters.stats.executed != expected {
        return Err(CliError::new(format!(
            "{} of {expected} packets were executed",
            counters.stats.executed
        ))
        .into());
    }
    let included = "XDP program from the frame to the verdict: headers, ICRC, queue pair, region, the store in mapped memory";
    let conditions = Conditions::of("one write, by BPF_PROG_TEST_RUN", included)
        .number("write_bytes", case.len)
        .number("frame_bytes", frame.len())
        .text("place", "the same each time, in the processor's cache")
        .number("executed", counters.stats.executed);
    Ok(Outcome::new(name, times, conditions))
}

/// Registers a region, connects a queue pair, and returns a frame that writes to the region.
fn frame(rdma: &mut Rdma, case: Case) -> Result<Vec<u8>, CliError> {
    let near = Ipv4Addr::new(198, 51, 100, 1).into();
    let far = Ipv4Addr::new(198, 51, 100, 2).into();
    let at = Registered {
        address: 1 << 40,
        len: MEMORY,
        rkey: RKEY,
    };
    rdma.register(&at, 0, AccessFlags::WRITE, case.order, 0)
        .map_err(failed)?;
    let pair = QueuePairConfig {
        transport: Transport::Uc,
        path: Path::new(far, near, 0xc001),
        peer: 0x11,
        psn: Psn::new(0),
        mtu: 1024,
        receives: 0,
    };
    rdma.connect(QUEUE_PAIR, &pair).map_err(failed)?;
    let mut writer = Writer::new(Path::new(near, far, 0xc001), Transport::Uc, QUEUE_PAIR).map_err(failed)?;
    let data: Vec<u8> = (0..case.len).map(|i| i as u8 | 1).collect();
    let mut frame = vec![0; MAX_FRAME];
    let reth = Reth {
        address: at.address + case.stride,
        rkey: RKEY,
        len: case.len as u32,
    };
    // The same PSN can be sent again and again: a UC queue pair accepts a message with an old PSN.
    let len = writer
        .write_only(&mut frame, Head::new(Psn::new(0)), reth, &data)
        .map_err(unwritten)?;
    frame.truncate(len);
    Ok(frame)
}
