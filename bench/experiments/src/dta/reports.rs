//! Experiment `dta-reports`: packets, bytes and software time of a DTA report, compared with RDMA writes generated in the
//! switch (DTA, section 5.5). Lengths are measured on frames that hopwise builds.

use std::net::{IpAddr, Ipv4Addr};

use wire::{
    dta::{
        Base, MergeOp, Operation, REPORT_PORT, Report,
        hash::{hashes, slot},
        layout::{put_slot, slot_stride},
    },
    roce::{Head, Opcode, Path, Psn, Reth, Transport, Writer},
};

use crate::figures::{
    failed,
    keys::{Keys, Kind},
};
use crate::{
    page::{Comparison, Findings, Table, fixed, line_series, linear, row},
    rows::{Observations, Results, judgement, listed},
    settings::Settings,
    timing::{self, Spread},
};
use terminal::CliError;

/// Bytes of Ethernet, IPv4 and UDP headers; the Ethernet FCS is separate.
const HEADERS: usize = 14 + 20 + 8;
const FCS: usize = 4;
/// Minimum length of an Ethernet frame in bytes, with FCS.
const MIN_FRAME: usize = 64;
/// Append entries that the translator puts into one write.
const BATCH: usize = 16;
/// Reporters whose sketches the translator merges, columns in one report, and bytes of a column.
const REPORTERS: usize = 16;
const COLUMNS: u8 = 64;
const COLUMN: usize = 16;
/// Slots of the store that the timed writes address.
const SLOTS: u64 = 1 << 20;

/// A DTA primitive with its sizes in bytes.
#[derive(Clone, Copy)]
enum Primitive {
    KeyWrite { copies: u8, key: usize, data: usize },
    Append { entry: usize },
    KeyIncrement { copies: u8, key: usize },
    SketchMerge,
}

const fn key_write(copies: u8, key: usize, data: usize) -> Primitive {
    Primitive::KeyWrite { copies, key, data }
}

/// The use cases of the paper's Table 2, with hopwise's sizes.
const USES: [(&str, Primitive); 11] = [
    ("INT path tracing", key_write(1, 13, 20)),
    ("INT path tracing", key_write(2, 13, 20)),
    ("INT path tracing", key_write(4, 13, 20)),
    ("Marple host counters", key_write(2, 4, 4)),
    ("PINT", key_write(2, 13, 1)),
    ("INT congestion events", Primitive::Append { entry: 4 }),
    ("Marple lossy connections", Primitive::Append { entry: 13 }),
    ("NetSeer loss events", Primitive::Append { entry: 18 }),
    (
        "TurboFlow counters",
        Primitive::KeyIncrement { copies: 2, key: 13 },
    ),
    (
        "Marple host counters (adding)",
        Primitive::KeyIncrement { copies: 2, key: 4 },
    ),
    ("Count-Min, 16 switches", Primitive::SketchMerge),
];

/// Packets and bytes of one report on one link.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    packets: f64,
    bytes: f64,
}

/// The load that one report causes on each link.
struct Costs {
    /// Load between reporter and translator.
    dta: Load,
    /// Load between translator and collector.
    translated: Load,
    /// Load between reporter and collector if the reporter generates RDMA itself.
    rdma: Load,
    /// Responses (to atomics) that the reporter must receive.
    responses: f64,
}

/// Returns the bytes of a frame on the link, with FCS and padding.
fn on_wire(len: usize) -> f64 {
    (len + FCS).max(MIN_FRAME) as f64
}

/// Returns the bytes on the link of an RDMA write of `len` bytes.
fn write_len(writer: &Writer, len: usize) -> f64 {
    on_wire(writer.frame_len(Opcode::WriteOnly, len))
}

impl Load {
    /// Returns the load of `packets` packets of `bytes` bytes each.
    fn times(packets: f64, bytes: f64) -> Self {
        Self {
            packets,
            bytes: packets * bytes,
        }
    }
}

fn costs(primitive: Primitive, writer: &Writer) -> Costs {
    let key = [0; 64];
    let data = [0; 1024];
    let columns = [0; COLUMNS as usize * COLUMN];

    let add = on_wire(writer.frame_len(Opcode::FetchAdd, 0));
    let operation = operation(primitive, &key, &data, &columns);
    let payload = Report {
        base: Base::default(),
        operation,
    }
    .len();
    let dta = Load {
        packets: 1.0,
        bytes: on_wire(HEADERS + payload),
    };

    let (translated, rdma, responses) = match primitive {
        Primitive::KeyWrite { copies, data, .. } => {
            let all = Load::times(f64::from(copies), write_len(writer, 4 + data));
            (all, all, 0.0)
        }
        Primitive::Append { entry } => {
            // A block is padded and has a trailer of 16 bytes. A switch would first advance the head of a shared list.
            let block = (BATCH * entry).next_multiple_of(8) + 16;
            let direct = Load {
                packets: 2.0,
                bytes: add + write_len(writer, entry),
            };
            (
                Load::times(1.0 / BATCH as f64, write_len(writer, block)),
                direct,
                1.0,
            )
        }
        Primitive::KeyIncrement { copies, .. } => {
            let all = Load::times(f64::from(copies), add);
            (all, all, f64::from(copies))
        }
        Primitive::SketchMerge => {
            let all = Load::times(1.0, write_len(writer, columns.len()));
            (
                Load::times(1.0 / REPORTERS as f64, write_len(writer, columns.len())),
                all,
                0.0,
            )
        }
    };
    Costs {
        dta,
        translated,
        rdma,
        responses,
    }
}

fn operation<'a>(primitive: Primitive, key: &'a [u8], data: &'a [u8], counters: &'a [u8]) -> Operation<'a> {
    match primitive {
        Primitive::KeyWrite {
            copies,
            key: len,
            data: data_len,
        } => Operation::KeyWrite {
            copies,
            store: 1,
            key: &key[..len],
            data: &data[..data_len],
        },
        Primitive::Append { entry } => Operation::Append {
            list: 1,
            entry_len: entry as u16,
            entries: &data[..entry],
        },
        Primitive::KeyIncrement { copies, key: len } => Operation::KeyIncrement {
            copies,
            store: 1,
            delta: 1,
            key: &key[..len],
        },
        Primitive::SketchMerge => Operation::SketchMerge {
            sketch: 1,
            epoch: 1,
            first_column: 0,
            depth: 4,
            width: 4,
            op: MergeOp::Sum,
            columns: COLUMNS,
            counters,
        },
    }
}

/// The columns of the table that describe a primitive.
struct PrimitiveCells {
    name: &'static str,
    copies: u64,
    key_bytes: u64,
    data_bytes: u64,
}

impl PrimitiveCells {
    fn new(name: &'static str, copies: u8, key_bytes: usize, data_bytes: usize) -> Self {
        Self {
            name,
            copies: copies.into(),
            key_bytes: key_bytes as u64,
            data_bytes: data_bytes as u64,
        }
    }
}

fn describe(primitive: Primitive) -> PrimitiveCells {
    match primitive {
        Primitive::KeyWrite { copies, key, data } => PrimitiveCells::new("key-write", copies, key, data),
        Primitive::Append { entry } => PrimitiveCells::new("append", 1, 0, entry),
        Primitive::KeyIncrement { copies, key } => PrimitiveCells::new("key-increment", copies, key, 8),
        Primitive::SketchMerge => PrimitiveCells::new("sketch-merge", 1, 0, usize::from(COLUMNS) * COLUMN),
    }
}

/// Time in ns to generate the frames of one Key-Write of a path, as a DTA report and as RDMA writes.
struct GenerationTime {
    copies: u8,
    dta: Spread,
    rdma: Spread,
}

/// Returns Ethernet, IPv4 and UDP headers for a payload of this length, without UDP checksum, as switches send them.
fn headers(payload: usize) -> [u8; HEADERS] {
    let mut bytes = [0; HEADERS];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&((payload + 28) as u16).to_be_bytes());
    bytes[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
    bytes[26..34].copy_from_slice(&[192, 0, 2, 7, 192, 0, 2, 200]);
    let checksum = wire::checksum::of(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes[34..36].copy_from_slice(&40_000_u16.to_be_bytes());
    bytes[36..38].copy_from_slice(&REPORT_PORT.to_be_bytes());
    bytes[38..40].copy_from_slice(&((payload + 8) as u16).to_be_bytes());
    bytes
}

/// Measures the generation of frames, which are the ones that `hopwise report` and the translator send.
fn generation_times(settings: &Settings, writer: &Writer) -> Result<Vec<GenerationTime>, CliError> {
    let keys = Keys {
        kind: Kind::RandomTuples,
        seed: 5,
    };
    let keys: Vec<_> = (0..256).map(|number| keys.key(number)).collect();
    let data = [7; 20];
    let mut writer = writer.clone();
    let mut found = Vec::new();
    for copies in [1, 2, 4] {
        let mut out = [0; 256];
        let len = Report {
            base: Base::default(),
            operation: Operation::KeyWrite {
                copies,
                store: 1,
                key: keys[0].as_ref(),
                data: &data,
            },
        }
        .len();
        let headers = headers(len);
        let dta = timing::measure(settings, || {
            for key in &keys {
                let operation = Operation::KeyWrite {
                    copies,
                    store: 1,
                    key: key.as_ref(),
                    data: &data,
                };
                let (head, body) = out.split_at_mut(HEADERS);
                head.copy_from_slice(&headers);
                Report {
                    base: Base::default(),
                    operation,
                }
                .emit(body)
                .map_err(|_| failed("a report too long"))?;
                std::hint::black_box(&mut out);
            }
            Ok(keys.len() as u64)
        })?;
        let mut psn = Psn::new(0);
        let rdma = timing::measure(settings, || {
            for key in &keys {
                let hashes = hashes(key.as_ref());
                for hash in &hashes.slots[..usize::from(copies)] {
                    let va = 0x7f00_0000_0000 + slot(*hash, SLOTS) * slot_stride(20);
                    let reth = Reth {
                        address: va,
                        rkey: 0x1f42,
                        len: 24,
                    };
                    psn = psn.next();
                    let written = writer.write_only_by(&mut out, Head::new(psn), reth, |to| {
                        put_slot(to, hashes.checksum, &data, 20);
                    });
                    written.map_err(|_| failed("a frame too long"))?;
                    std::hint::black_box(&mut out);
                }
            }
            Ok(keys.len() as u64)
        })?;
        found.push(GenerationTime { copies, dta, rdma });
    }
    Ok(found)
}

pub(crate) fn run(settings: &Settings) -> Result<Findings, CliError> {
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let destination = Ipv4Addr::new(192, 0, 2, 200);
    let path = Path::new(IpAddr::V4(source), IpAddr::V4(destination), 0xc001);
    let writer = Writer::new(path, Transport::Rc, 0x12).map_err(failed)?;
    let times = generation_times(settings, &writer)?;
    Ok(findings(&writer, &times))
}

/// Returns the costs of a Key-Write of a path of five nodes.
fn path_costs(copies: u8, writer: &Writer) -> Costs {
    costs(
        Primitive::KeyWrite {
            copies,
            key: 13,
            data: 20,
        },
        writer,
    )
}

fn bytes_table(writer: &Writer) -> Table {
    let columns = "use,primitive,n,key_bytes,data_bytes,dta_bytes,rdma_packets,rdma_bytes,\
        rdma_responses,rdma_to_dta,collector_packets,collector_bytes";
    let mut table = Table::new(
        "bytes",
        "Packets and bytes of one report, from the switch",
        columns,
    );
    for (name, primitive) in USES {
        let Costs {
            dta,
            translated,
            rdma,
            responses,
        } = costs(primitive, writer);
        let cells = describe(primitive);
        table.push(row![
            name,
            cells.name,
            cells.copies,
            cells.key_bytes,
            cells.data_bytes,
            [dta.bytes, rdma.packets, rdma.bytes, responses].map(|count| fixed(count, 0)),
            fixed(rdma.bytes / dta.bytes, 2),
            fixed(translated.packets, 4),
            fixed(translated.bytes, 1),
        ]);
    }
    let copies = (1..=4).map(|copies| (f64::from(copies), path_costs(copies, writer)));
    let rdma = copies.clone().map(|(copies, costs)| (copies, costs.rdma.bytes));
    let dta = copies.map(|(copies, costs)| (copies, costs.dta.bytes));
    let lines = vec![
        line_series("RDMA from the switch", rdma.collect()),
        line_series("DTA", dta.collect()),
    ];
    let axes = [linear("copies"), linear("from the switch (bytes)")];
    let note = "Key-Write of a path of five nodes, Ethernet frames";
    table.plot("Bytes in the network per report", note, axes, lines);
    table
}

fn findings(writer: &Writer, times: &[GenerationTime]) -> Findings {
    let [two_to_dta, four_to_dta] = [2, 4].map(|copies| {
        let costs = path_costs(copies, writer);
        costs.rdma.bytes / costs.dta.bytes
    });
    let two = times.iter().find(|one| one.copies == 2);
    let [dta_ns, rdma_ns] = [two.map(|one| one.dta), two.map(|one| one.rdma)]
        .map(|ns| ns.map_or_else(String::new, |ns| ns.text(0)));
    // Bytes per collector: queue pair 3, PSN 3, R_Key 4, address 8, length 4, IPv4 address 4. Per translator: IPv4 address 4.
    let rdma_state = 1024 * (3 + 3 + 4 + 8 + 4 + 4);
    let dta_state = 512 * 4;
    let columns = "n,dta_ns,dta_ns_min,dta_ns_max,rdma_ns,rdma_ns_min,rdma_ns_max,rdma_to_dta";
    let about = "Time to build the frames of one Key-Write of a path, in software";
    let mut table = Table::new("cost", about, columns);
    for one in times {
        let ratio = fixed(one.rdma.median / one.dta.median, 2);
        table.push(row![one.copies, one.dta.cells(1), one.rdma.cells(1), ratio]);
    }
    Findings {
        comparisons: vec![
            Comparison::new(
                "telemetry traffic saved by sending one Key-Write instead of N writes",
                "a factor of N",
                format!("{two_to_dta:.2} in bytes for N = 2, {four_to_dta:.2} for N = 4; N in packets"),
            ),
            Comparison::new(
                "resources of a reporter",
                "several resources of the chip halved (Fig. 13)",
                format!(
                    "not comparable: no switch here. In software, N = 2: {dta_ns} ns per report, compared with {rdma_ns} ns for the writes"
                ),
            ),
            Comparison::new(
                "state for 1024 collectors (RDMA), 512 translators (DTA)",
                "tables in the chip",
                format!(
                    "{} bytes compared with {}",
                    terminal::units::count(rdma_state),
                    terminal::units::count(dta_state)
                ),
            ),
        ],
        ..Findings::new(
            METHOD,
            CONDITIONS.map(str::to_owned),
            [bytes_table(writer), table],
        )
    }
}

const METHOD: &str = "The lengths are those of frames that hopwise builds: a DTA report, and the RoCEv2 writes and atomics that the translator makes of it. \
                      Without a translator, the switch would have to build and send these itself. Frames are Ethernet with checksum, and IPv4. The second \
                      table shows the time to build both in software. The resources of a switch's chip (Fig. 13) cannot be reproduced in software.";
const CONDITIONS: [&str; 4] = [
    "lengths: exact, the same on every machine",
    "Append: the translator puts 16 entries into a block with a trailer; a switch that appends to a shared list first advances the list's head \
     by FETCH_ADD and must wait for the answer",
    "Sketch-Merge: 16 switches, reports of 64 columns of 4 counters of 4 bytes; without a translator, each switch writes its sketch to its own \
     region, and the collector adds them up",
    timing::CONDITION,
];

/// Computes the remarks from the rows.
pub(crate) fn observe(results: &Results) -> Observations {
    let rows = results.table("bytes");
    let mut remarks: Vec<String> = listed(
        "One Key-Write of a path by DTA and as RDMA writes: {}.",
        rows.with(&[("use", "INT path tracing")])
            .iter()
            .map(|row| row.fill("N = {n}: {dta_bytes} and {rdma_bytes} bytes")),
    )
    .into_iter()
    .collect();
    for primitive in rows.values("primitive") {
        let mut packets: Vec<String> = rows
            .with(&[("primitive", primitive)])
            .iter()
            .map(|row| row.fill("{collector_packets}"))
            .collect();
        packets.sort();
        packets.dedup();
        remarks.extend(listed(
            &format!("Packets that reach the collector per report, {primitive}: {{}}."),
            packets,
        ));
    }
    remarks.extend(
        [
            "a DTA report contains the key where the write contains an address, and the write has additional headers. The gain comes from copies, from batches, and \
             from state that the switch does not need: addresses, R_Keys, queue pairs and their packet sequence numbers, which must have no gap on a reliable \
             connection.",
            "Key-Increment from a switch needs a reliable connection and an answer to each atomic; a switch has no memory to store operations until the answer.",
        ]
        .map(judgement),
    );
    Observations::remarks(remarks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Scale;

    fn writer() -> Writer {
        let path = Path::new(
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200)),
            0xc001,
        );
        Writer::new(path, Transport::Rc, 0x12).unwrap()
    }

    #[test]
    fn lengths_are_those_of_the_examples() {
        // wire-formats 5.7: a frame of 91 bytes; 6.4: one of 98 per copy; 6.5: a FETCH_ADD of 86. Ethernet's checksum is not in
        // them.
        let path = costs(
            Primitive::KeyWrite {
                copies: 2,
                key: 13,
                data: 20,
            },
            &writer(),
        );
        assert_eq!(
            path.dta,
            Load {
                packets: 1.0,
                bytes: 91.0 + 4.0
            }
        );
        assert_eq!(
            path.rdma,
            Load {
                packets: 2.0,
                bytes: 2.0 * (98.0 + 4.0)
            }
        );
        let add = costs(Primitive::KeyIncrement { copies: 1, key: 4 }, &writer());
        assert_eq!((add.rdma.bytes, add.responses), (86.0 + 4.0, 1.0));
        // NetSeer's 18 bytes: 5.7 has a payload of 34; a short one is padded to the minimum frame length.
        assert_eq!(
            costs(Primitive::Append { entry: 18 }, &writer()).dta.bytes,
            42.0 + 34.0 + 4.0
        );
        assert_eq!(costs(Primitive::Append { entry: 1 }, &writer()).dta.bytes, 64.0);
    }

    #[test]
    fn generated_headers_have_valid_lengths_and_checksum() {
        let headers = headers(49);
        let sum: u32 = headers[14..34]
            .as_chunks::<2>()
            .0
            .iter()
            .map(|pair| u32::from(u16::from_be_bytes(*pair)))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        // As in the vector `dta1_kw_pkt`, whose total length is 0x4d.
        assert_eq!(headers[16..18], [0, 0x4d]);
    }

    #[test]
    fn every_number_of_copies_is_timed() {
        // How they compare depends on the machine and its load: no test may.
        let times =
            generation_times(&Settings::new(Scale::Smallest, super::super::TIMED), &writer()).unwrap();
        let timed = times
            .iter()
            .map(|one| (one.copies, one.dta.min > 0.0, one.rdma.min > 0.0));
        assert_eq!(
            timed.collect::<Vec<_>>(),
            [(1, true, true), (2, true, true), (4, true, true)]
        );
    }

    #[test]
    fn bytes_and_packets_are_those_of_the_rows() {
        let csv = "use,primitive,n,dta_bytes,rdma_bytes,collector_packets\nINT path tracing,key-write,1,95,102,1.0\n\
                   INT path tracing,key-write,2,95,1204,2.0\nPINT,key-write,2,76,172,2.0\n";
        assert_eq!(
            observe(&Results::parse([("bytes", csv)])).remarks[..2],
            [
                "One Key-Write of a path by DTA and as RDMA writes: N = 1: 95 and 102 bytes; N = 2: 95 and 1,204 bytes.",
                "Packets that reach the collector per report, key-write: 1.0; 2.0."
            ]
        );
    }
}
