//! The command `hopwise bench peers PATH…`: compares XDP programs of other projects with hopwise on the same reports.
//!
//! As in `xdp-detect-…`, `BPF_PROG_TEST_RUN` passes one frame, and a BPF program of hopwise changes it into the next report and
//! calls the peer's program. The time of the change alone is measured separately and subtracted.

use std::fs;
use std::path::Path;

use nic::bpf::Object;
use terminal::CliError;
use testkit::workload::collector::{CASES, Case};

use super::harness::{Conditions, Failure, Outcome, Plan, median, workload};
use super::kernel::Stack;
use super::{fastpath, kernel};
use experiments::figures::failed;

/// A comparison of a peer with hopwise, on the reports of one of hopwise's cases.
struct Comparison {
    name: &'static str,
    about: &'static str,
    /// Name of the case in which hopwise's collector processes the same reports.
    ours: &'static str,
    /// True if hopwise's XDP program is measured too.
    in_kernel: bool,
    flows: u32,
    /// One of this many reports changes by more than a threshold; 0 for none.
    changes: u32,
}

const COMPARISONS: [Comparison; 5] = [
    Comparison {
        name: "peer-6x8-1k",
        about: "another project's XDP program, 6 hops of 8 items, 1,000 flows (`hopwise bench peers FILE`, root)",
        ours: "fastpath-6x8-1k",
        in_kernel: true,
        flows: 1000,
        changes: 0,
    },
    Comparison {
        name: "peer-6x8-100k",
        about: "the same, 100,000 flows in random order",
        ours: "fastpath-6x8-100k-shuffled",
        in_kernel: true,
        flows: 100_000,
        changes: 0,
    },
    Comparison {
        name: "peer-6x8-change",
        about: "the same, 1,000 flows, a change with every report",
        ours: "fastpath-6x8-change",
        in_kernel: false,
        flows: 1000,
        changes: 1,
    },
    Comparison {
        name: "peer-1x1-1k",
        about: "the same, 1 hop of 1 item, no change",
        ours: "fastpath-1x1-1k",
        in_kernel: true,
        flows: 1000,
        changes: 0,
    },
    Comparison {
        name: "peer-3x3-1k",
        about: "the same, 3 hops of 3 items: node, hop latency, queue",
        ours: "fastpath-3x3-1k",
        in_kernel: true,
        flows: 1000,
        changes: 0,
    },
];

/// Number of reports per test run in the kernel.
const REPORTS: u32 = 200_000;
/// Maximum number of keys that are counted in a map.
const MAX_KEYS: usize = 1_000_000;
// Offsets of the UDP destination port and checksum in a frame. A checksum of 0 means none.
const PORT: usize = 36;
const CHECKSUM: usize = 40;

/// Returns the names and descriptions of the comparisons.
pub(super) fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMPARISONS
        .iter()
        .map(|comparison| (comparison.name, comparison.about))
}

/// Prints the outcome of a comparison, by its name.
pub(super) type Print<'p> = &'p mut dyn FnMut(&str, Result<Outcome, Failure>) -> Result<(), CliError>;

struct Peer {
    object: Vec<u8>,
    /// The UDP port on which it expects reports.
    port: u16,
}

/// Compares each of the files with hopwise. The error for an unusable file says what to do.
pub(super) fn run(paths: &[String], port: u16, plan: &Plan, print: Print<'_>) -> Result<(), CliError> {
    if paths.is_empty() {
        return Err(CliError::new(
            "no peer was given: name the object file of an XDP program, compiled with clang -target bpf; \
             docs/reference/performance.md shows how",
        ));
    }
    for path in paths {
        let peer = Peer {
            object: read(Path::new(path))?,
            port,
        };
        for comparison in &COMPARISONS {
            print(comparison.name, peer.compare(comparison, plan))?;
        }
    }
    Ok(())
}

/// Reads an object file, which must be ELF for BPF.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let named = path.display();
    let bytes = fs::read(path).map_err(|error| {
        CliError::io(
            format!("cannot read {named}"),
            error,
            "name the object file of an XDP program",
        )
    })?;
    match kind(&bytes) {
        Kind::Bpf => Ok(bytes),
        Kind::Elf(machine) => Err(CliError::new(format!(
            "{named} is an ELF file for machine {machine}, not for BPF (247): compile it with clang -target bpf; \
             query functions in shared objects are not supported"
        ))),
        Kind::Other => Err(CliError::new(format!(
            "{named} is not an ELF file: compile the peer's C source with clang -O2 -g -target bpf -c"
        ))),
    }
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bpf,
    /// An ELF file for another machine, with `e_machine` of its header.
    Elf(u16),
    Other,
}

fn kind(bytes: &[u8]) -> Kind {
    const MACHINE: usize = 18;
    const BPF: u16 = 247;
    match (bytes.starts_with(b"\x7fELF"), bytes.get(MACHINE..MACHINE + 2)) {
        // Byte 5 of the ELF header, `EI_DATA`: 2 is big-endian.
        (true, Some(&[a, b])) => match if bytes[5] == 2 { [b, a] } else { [a, b] } {
            machine if u16::from_le_bytes(machine) == BPF => Kind::Bpf,
            machine => Kind::Elf(u16::from_le_bytes(machine)),
        },
        _ => Kind::Other,
    }
}

impl Peer {
    fn compare(&self, comparison: &Comparison, plan: &Plan) -> Result<Outcome, Failure> {
        let case = workload(CASES, comparison.ours, |case| case.name)?;
        let frame = frame(&case);
        let ours = fastpath::collect(comparison.ours, plan)?.median();
        let mut times = Vec::new();
        let mut kernel = Vec::new();
        let mut passed = 0.0;
        let mut measured = None;
        let flows = plan.flows(comparison.flows);
        let stack = Stack::of(&case);
        for _ in 0..plan.runs {
            let run = if comparison.in_kernel {
                // The same object generates the peer's reports, because the verifier takes seconds for each object.
                let setup = kernel::Setup::unchanging(flows, stack, &frame)?;
                let peer = self.load()?;
                let (ns, share) = setup.detect(&frame, REPORTS)?;
                kernel.push(ns);
                passed = share;
                self.measure(&peer, &setup.object, &frame, flows)?
            } else {
                let maker = kernel::reports(flows, stack, comparison.changes)?;
                let peer = self.load()?;
                self.measure(&peer, &maker, &frame, flows)?
            };
            times.push(run.reports - run.changing);
            measured = Some(run);
        }
        let Some(Measured {
            other,
            changing,
            program,
            keys,
            ..
        }) = measured
        else {
            return Err(CliError::new("no runs").into());
        };
        let peer = median(times.clone());
        let included = "the peer's XDP program from the frame to its verdict; the time for making each report is subtracted";
        let mut conditions = Conditions::of("one report, by BPF_PROG_TEST_RUN", included)
            .text("program", program)
            .text("order", "flows by a stride that defeats prefetching")
            .number("flows", flows)
            .number("hops", case.hops)
            .number("items_per_hop", case.bitmap.count_ones())
            .number("frame_bytes", frame.len())
            .number("udp_port", self.port)
            .text("entries", keys)
            .ratio("other_frame_ns", other)
            .ratio("subtracted_ns", changing)
            .text("compared_with", format!("{} in this run", comparison.ours))
            .ratio("hopwise_ns", ours)
            .ratio("peer_to_hopwise", peer / ours);
        if !kernel.is_empty() {
            let kernel = median(kernel);
            conditions = conditions
                .ratio("hopwise_kernel_ns", kernel)
                .ratio("peer_to_hopwise_kernel", peer / kernel)
                .ratio("hopwise_kernel_passed_per_report", passed);
        }
        if peer < 2.0 * other {
            let doubt = "no: a report takes less than twice as long as a frame without one; is the port right (--port)?";
            conditions = conditions.text("reads_reports", doubt);
        }
        Ok(Outcome::new(comparison.name, times, conditions))
    }

    /// Loads the peer's object, which must have exactly one program.
    fn load(&self) -> Result<LoadedPeer, Failure> {
        let object = Object::load(&self.object, &nic::bpf::LoadOptions::default())
            .map_err(|error| CliError::new(format!("the peer's object: {error}")))?;
        let names = object.programs();
        let [program] = names.as_slice() else {
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(
                CliError::new(format!("the object must have one XDP program; it has: {names}")).into(),
            );
        };
        Ok(LoadedPeer {
            program: program.clone(),
            object,
        })
    }

    fn measure(
        &self,
        peer: &LoadedPeer,
        maker: &Object,
        frame: &[u8],
        flows: u32,
    ) -> Result<Measured, Failure> {
        let program = &peer.program;
        let peer = &peer.object;
        let mut frame = frame.to_vec();
        frame[PORT..PORT + 2].copy_from_slice(&self.port.to_be_bytes());
        frame[CHECKSUM..CHECKSUM + 2].fill(0);
        let (maker_program, _) = [
            ("hopwise_cost_peer", "cost_peer"),
            // For a peer that accepts frames in several buffers (XDP fragments).
            ("hopwise_cost_peer_f", "cost_peer_frags"),
        ]
        .into_iter()
        .find(|(_, map)| maker.set_program(map, peer, program).is_ok())
        .ok_or_else(|| {
            CliError::new(format!(
                "the kernel does not call `{program}` from another program"
            ))
        })?;
        // Warm-up: two rounds create the state of all flows.
        test_run(maker, maker_program, &frame, flows * 2)?;
        let reports = test_run(maker, maker_program, &frame, REPORTS)?;
        let changing = test_run(maker, "hopwise_cost_only", &frame, REPORTS)?;
        // An ARP frame, for the time of the peer's program without a report.
        frame[12..14].copy_from_slice(&[8, 6]);
        let other = test_run(peer, program, &frame, REPORTS)?;
        Ok(Measured {
            reports,
            changing,
            other,
            program: program.clone(),
            keys: keys(peer)?,
        })
    }
}

struct LoadedPeer {
    object: Object,
    /// Name of the only program in the object.
    program: String,
}

/// Times in ns, and the numbers of entries in the peer's maps.
struct Measured {
    /// Time to change the frame and to run the peer's program.
    reports: f64,
    /// Time to change the frame alone.
    changing: f64,
    /// Time of the peer's program on a frame without a report.
    other: f64,
    program: String,
    keys: String,
}

/// Runs a program `reports` times on a frame. Returns the time of one run, ns.
fn test_run(object: &Object, program: &str, frame: &[u8], reports: u32) -> Result<f64, Failure> {
    let run = object.test_run(program, frame, reports).map_err(failed)?;
    Ok(f64::from(run.duration_ns))
}

fn frame(case: &Case) -> Vec<u8> {
    Case { flows: 1, ..*case }
        .feed()
        .whole()
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// Counts the entries of the peer's hash maps: `tb_flow 1,000, tb_queue 24`.
fn keys(peer: &Object) -> Result<String, Failure> {
    let mut text = Vec::new();
    for map in peer.maps().filter(|map| map.is_hashed()) {
        let count = map.count(MAX_KEYS).map_err(failed)?;
        text.push(format!("{} {}", map.name(), terminal::units::count(count as u64)));
    }
    Ok(if text.is_empty() {
        "no hash maps".to_owned()
    } else {
        text.join(", ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_comparison_has_a_case_with_the_same_reports() {
        for comparison in &COMPARISONS {
            let case = workload(CASES, comparison.ours, |case| case.name).unwrap();
            assert_eq!(case.flows, comparison.flows);
            let shape = format!("{}x{}", case.hops, case.bitmap.count_ones());
            assert!(comparison.name.contains(&shape), "{}", comparison.name);
            let frame = frame(&case);
            assert_eq!(frame[PORT..PORT + 2], 32_766_u16.to_be_bytes());
        }
    }

    #[test]
    fn a_file_is_recognised_by_its_first_bytes() {
        let elf = |order: u8, machine: [u8; 2]| {
            let mut bytes = vec![0; 64];
            bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
            bytes[18..20].copy_from_slice(&machine);
            bytes
        };
        assert_eq!(kind(&elf(1, [247, 0])), Kind::Bpf);
        assert_eq!(kind(&elf(2, [0, 247])), Kind::Bpf);
        assert_eq!(kind(&elf(1, [62, 0])), Kind::Elf(62));
        assert_eq!(kind(b"\x7fELF"), Kind::Other);
        assert_eq!(kind(b"#!/bin/sh"), Kind::Other);
        assert_eq!(kind(b""), Kind::Other);
    }

    #[test]
    fn what_is_not_a_peer_is_refused_with_advice() {
        let message = |path: &str| read(Path::new(path)).err().map(|error| error.to_string());
        assert!(message("/nonexistent.o").is_some_and(|text| text.contains("cannot read /nonexistent.o")));
        let this = std::env::current_exe().unwrap();
        let text = message(this.to_str().unwrap()).unwrap();
        assert!(text.contains("clang -target bpf"), "{text}");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(message(source).is_some_and(|text| text.contains("is not an ELF file")));
    }
}
