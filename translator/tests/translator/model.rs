//! Models of collectors, network and reporters.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rdma::transport::{Blocked, Credit, RemoteAddr, Transport};
use translator::{CollectorConfig, Config, Origin, Output, Stats, StoreEntry, Translator};
use wire::dta::control::Body;
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, MergeOp, Ring, SketchKind};
use wire::dta::{Base, Control, Operation, Priority, Report};

/// The key of 5.6's vector.
pub(crate) const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x00, 0x50, 6];
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// One operation that the transport accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) place: RemoteAddr,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) immediate: Option<u32>,
    pub(crate) reliable: bool,
}

/// Memory of several collectors, and the operations executed in it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) regions: BTreeMap<(u8, u16), Vec<u8>>,
    pub(crate) log: Vec<Done>,
    /// Credit, by collector.
    pub(crate) room: [Credit; 4],
    /// Collectors that are not connected.
    pub(crate) away: [bool; 4],
    /// Accepts no unreliable operations.
    pub(crate) is_reliable_only: bool,
    /// Refuses operations after this many, although there is credit.
    pub(crate) fuse: Option<u32>,
    /// The reason for the refusal.
    pub(crate) says: Blocked,
    pub(crate) is_logging: bool,
    /// Regions whose memory was lost.
    pub(crate) given_up: Vec<RemoteAddr>,
}

impl Memory {
    fn check(&mut self, place: RemoteAddr, offset: u64, len: usize) -> Result<&mut [u8], Blocked> {
        if self.away[usize::from(place.collector)] {
            return Err(Blocked::Broken);
        }
        if self.room[usize::from(place.collector)].messages == 0 {
            return Err(Blocked::Full);
        }
        if let Some(fuse) = &mut self.fuse {
            if *fuse == 0 {
                return Err(self.says);
            }
            *fuse -= 1;
        }
        let region = self
            .regions
            .get_mut(&(place.collector, place.region))
            .ok_or(Blocked::NoRegion)?;
        let at = usize::try_from(offset).expect("an offset");
        Ok(region
            .get_mut(at..at + len)
            .expect("never a byte outside its region"))
    }

    pub(crate) fn body(&self, region: u16) -> &[u8] {
        &self.regions[&(0, region)]
    }

    /// Returns and removes the executed operations.
    pub(crate) fn done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.log)
    }
}

impl Transport for Memory {
    fn credit(&self, collector: u8, reliable: bool) -> Credit {
        if self.away[usize::from(collector)] || self.is_reliable_only && !reliable {
            Credit::NONE
        } else {
            self.room[usize::from(collector)]
        }
    }

    fn give_up(&mut self, place: RemoteAddr) {
        self.given_up.push(place);
    }

    fn is_connected(&self, collector: u8) -> bool {
        !self.away[usize::from(collector)]
    }

    fn write(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        data: &[u8],
        immediate: Option<u32>,
        reliable: bool,
    ) -> Result<(), Blocked> {
        if self.is_reliable_only && !reliable {
            return Err(Blocked::Full);
        }
        self.check(place, offset, data.len())?.copy_from_slice(data);
        if self.is_logging {
            self.log.push(Done {
                place,
                offset,
                data: data.to_vec(),
                immediate,
                reliable,
            });
        }
        Ok(())
    }

    fn add(
        &mut self,
        place: RemoteAddr,
        offset: u64,
        delta: u64,
        immediate: Option<u32>,
    ) -> Result<(), Blocked> {
        assert_eq!(offset % 8, 0);
        let counter = self
            .check(place, offset, 8)?
            .first_chunk_mut::<8>()
            .expect("a counter");
        *counter = u64::from_le_bytes(*counter).wrapping_add(delta).to_le_bytes();
        if self.is_logging {
            self.log.push(Done {
                place,
                offset,
                data: delta.to_be_bytes().to_vec(),
                immediate,
                reliable: true,
            });
        }
        Ok(())
    }
}

/// Messages to reporters.
#[derive(Debug, Default)]
pub(crate) struct Mail(pub(crate) Vec<(SocketAddr, u8, Vec<u8>)>);

impl Output for Mail {
    fn control(&mut self, to: SocketAddr, collector: u8, payload: &[u8]) {
        self.0.push((to, collector, payload.to_vec()));
    }
}

/// A translator, its collectors, and the time.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) translator: Translator,
    pub(crate) memory: Memory,
    pub(crate) mail: Mail,
    pub(crate) now: u64,
}

pub(crate) fn sender(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 0xc0de))
}

/// The stores of every test: key-write 1 (region 0), lists 0 to 15 tagged (1), key-increment 1 (2), postcards 1 (3), sketch 4 of
/// two reporters (4), lists 100 to 103 bare (5).
pub(crate) fn stores() -> Vec<StoreEntry> {
    let family = Family::V1;
    let ring = Ring {
        entry_len: 4,
        entries: 64,
        batch: 4,
        tagged: true,
    };
    let bare = Ring {
        entry_len: 3,
        entries: 12,
        batch: 4,
        tagged: false,
    };
    let shape = Columns {
        depth: 4,
        columns: 10,
        width: 4,
    };
    let sketch = Geometry::Sketch {
        kind: SketchKind::CountMin,
        op: MergeOp::Sum,
        shape,
    };
    vec![
        StoreEntry::new(
            0,
            1,
            Geometry::KeyWrite {
                slots: 1 << 20,
                data_len: 20,
                family,
            },
        ),
        StoreEntry::new(
            1,
            0,
            Geometry::Append {
                lists: 16,
                first_list: 0,
                ring,
            },
        ),
        StoreEntry::new(
            2,
            1,
            Geometry::KeyIncrement {
                slots: 1 << 16,
                family,
            },
        ),
        StoreEntry::new(
            3,
            1,
            Geometry::Postcarding {
                slots: 1 << 16,
                hops: 5,
                family,
            },
        ),
        StoreEntry {
            reporters: 2,
            ..StoreEntry::new(4, 4, sketch)
        },
        StoreEntry::new(
            5,
            0,
            Geometry::Append {
                lists: 4,
                first_list: 100,
                ring: bare,
            },
        ),
    ]
}

pub(crate) fn config(stores: Vec<StoreEntry>) -> Config {
    let collector = CollectorConfig {
        stores,
        ..CollectorConfig::default()
    };
    Config {
        collectors: vec![Some(collector)],
        sketch_columns: 4,
        postcards: 64,
        ..Config::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(config(stores()))
    }

    pub(crate) fn of(config: Config) -> Self {
        let mut regions = BTreeMap::new();
        for (collector, memory) in config.collectors.iter().enumerate() {
            for store in memory.iter().flat_map(|memory| &memory.stores) {
                regions.insert(
                    (collector as u8, store.region),
                    vec![0; store.geometry.body_len() as usize],
                );
            }
        }
        let memory = Memory {
            regions,
            log: Vec::new(),
            room: [Credit::UNLIMITED; 4],
            away: [false; 4],
            is_reliable_only: false,
            fuse: None,
            says: Blocked::Broken,
            is_logging: true,
            given_up: Vec::new(),
        };
        let translator = Translator::new(config).expect("good settings");
        Self {
            translator,
            memory,
            mail: Mail::default(),
            now: 1_000 * MS,
        }
    }

    pub(crate) fn send_bytes(&mut self, from: SocketAddr, collector: u8, payload: &[u8]) {
        let origin = Origin {
            sender: from,
            collector,
        };
        self.translator
            .process(self.now, origin, payload, &mut self.memory, &mut self.mail);
        assert!(self.stats().is_balanced(), "{:#?}", self.stats());
    }

    /// Sends a report from host 1.
    pub(crate) fn send(&mut self, base: Base, operation: Operation<'_>) {
        self.send_from(sender(1), base, operation);
    }

    pub(crate) fn send_from(&mut self, from: SocketAddr, base: Base, operation: Operation<'_>) {
        let report = Report { base, operation };
        let mut bytes = vec![0; report.len()];
        report.emit(&mut bytes).expect("a good report");
        self.send_bytes(from, 0, &bytes);
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, time: u64) {
        self.now += time;
        self.translator.tick(self.now, &mut self.memory);
        assert!(self.stats().is_balanced(), "{:#?}", self.stats());
    }

    pub(crate) fn stats(&self) -> Stats {
        self.translator.stats()
    }

    pub(crate) fn dropped(&self, reason: translator::Reason) -> u64 {
        self.stats().reports.dropped[reason as usize]
    }

    pub(crate) fn done(&self) -> u64 {
        self.stats().reports.done.iter().sum()
    }

    /// Control messages sent to reporters since the last call.
    pub(crate) fn controls(&mut self) -> Vec<(SocketAddr, Body)> {
        let read = |(to, collector, bytes): (SocketAddr, u8, Vec<u8>)| {
            assert_eq!(collector, 0);
            (to, Control::parse(&bytes).expect("a control message").body)
        };
        std::mem::take(&mut self.mail.0).into_iter().map(read).collect()
    }
}

/// Base headers: of reporter 7, medium priority.
pub(crate) fn plain() -> Base {
    Base {
        reporter: 7,
        priority: Priority::Medium,
        ..Base::default()
    }
}

pub(crate) fn with(priority: Priority) -> Base {
    Base { priority, ..plain() }
}

pub(crate) fn immediate() -> Base {
    Base {
        immediate: true,
        ..plain()
    }
}

pub(crate) fn essential(sequence: u16) -> Base {
    Base {
        essential: true,
        sequence,
        ..plain()
    }
}

pub(crate) fn put(key: &[u8]) -> Operation<'_> {
    Operation::KeyWrite {
        copies: 1,
        store: 1,
        key,
        data: &[1, 2, 3, 4],
    }
}

pub(crate) fn append(list: u32, entries: &[u8]) -> Operation<'_> {
    Operation::Append {
        list,
        entry_len: if list < 100 { 4 } else { 3 },
        entries,
    }
}

/// A pseudo-random number generator.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
