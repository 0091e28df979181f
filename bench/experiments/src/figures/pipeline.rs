//! A translator and a collector's memory in one process, without a network: DTA reports go in, bytes in memory regions come
//! out. `hopwise run` does the same with sockets or NICs in between.
//!
//! ```text
//! reports ─► Translator ─► Links (RoCEv2 requester) ─frames─► Responder ─► regions of the stores
//!            └──── TranslatorHalf ────┘ ◄────── responses ────── └─── CollectorHalf ───┘
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::dta::{BODY, DtaStore, Header, region_len};
use memory::Region;
use rdma::requester::{Config, Connection, Links, RemoteRegion};
use rdma::responder::{self, AccessFlags, Order, QueuePairConfig, Registration, Responder};
use translator::{self, CollectorConfig, StoreEntry, Translator};
use wire::dta::layout::Geometry;
use wire::roce::{Packet, Path, Transport};

use super::failed;
use terminal::CliError;

/// Maximum number of frames between two calls of [`Pipeline::deliver`], more than a burst of reports generates.
const MAX_FRAMES: usize = 1 << 14;
/// Simulated time between two bursts, ns.
const STEP: u64 = 10_000;
/// UDP source port of RoCEv2.
const PORT: u16 = 0xc001;

/// The translator and the RoCEv2 requester behind it.
#[derive(Debug)]
pub struct TranslatorHalf {
    translator: Translator,
    links: Links,
    controls: Controls,
    /// Source address of all reports.
    sender: SocketAddr,
    now: u64,
}

/// The responder and the stores to which it writes.
#[derive(Debug)]
pub struct CollectorHalf {
    responder: Responder,
    stores: Vec<DtaStore>,
    responses: Responses,
}

/// A translator and a collector's memory, connected without a network.
#[derive(Debug)]
pub struct Pipeline {
    sending: TranslatorHalf,
    receiving: CollectorHalf,
}

/// Counts the control messages that the translator sends to reporters.
#[derive(Default, Debug)]
struct Controls(u64);

impl translator::Output for Controls {
    fn control(&mut self, _: SocketAddr, _: u8, _: &[u8]) {
        self.0 += 1;
    }
}

/// Frames that the responder sends (acknowledgements and atomic responses), concatenated, and the end of each.
#[derive(Default, Debug)]
struct Responses {
    frames: Vec<u8>,
    ends: Vec<usize>,
}

impl responder::Output for Responses {
    fn respond(&mut self, _: &Path, frame: &[u8]) {
        self.frames.extend_from_slice(frame);
        self.ends.push(self.frames.len());
    }
}

/// Creates a store in a populated region, with huge pages if available.
fn store(wanted: &StoreEntry) -> Result<DtaStore, CliError> {
    let region = Region::anonymous(region_len(&wanted.geometry), true).map_err(failed)?;
    region.populate().map_err(failed)?;
    let header = Header {
        name: "measured".into(),
        id: wanted.id.into(),
        geometry: wanted.geometry,
        fields: String::new(),
        created: 0,
        snapshot: None,
    };
    DtaStore::create(Arc::new(region), &header).map_err(failed)
}

impl CollectorHalf {
    /// Creates a responder with these stores. Also returns the address and R_Key of each region, for the requester.
    fn new(wanted: &[StoreEntry]) -> Result<(Self, Vec<RemoteRegion>), CliError> {
        let mut responder = Responder::new(responder::Config::default()).map_err(failed)?;
        let mut stores = Vec::new();
        let mut regions = Vec::new();
        for (number, wanted) in (0_u16..).zip(wanted) {
            let store = store(wanted)?;
            // A slot begins with its checksum, which is written last, so that a reader never accepts a half-written slot.
            let slots = matches!(
                wanted.geometry,
                Geometry::KeyWrite { .. } | Geometry::Postcarding { .. }
            );
            let what = Registration {
                memory: Arc::clone(store.region()),
                start: BODY,
                len: store.body_len(),
                access: AccessFlags::ALL,
                order: if slots { Order::HeadLast } else { Order::Ascending },
                region: number,
            };
            let at = responder.register(&what).map_err(failed)?;
            regions.push(RemoteRegion {
                region: number,
                address: at.address,
                len: at.len,
                rkey: at.rkey,
            });
            stores.push(store);
        }
        Ok((
            Self {
                responder,
                stores,
                responses: Responses::default(),
            },
            regions,
        ))
    }

    /// Processes frames from the translator; the responses wait in `responses`.
    pub fn receive<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) {
        self.responder.process(frames, &mut self.responses);
    }

    /// Returns the counters of the responder.
    pub fn responded(&self) -> &responder::Stats {
        self.responder.stats()
    }
}

impl TranslatorHalf {
    /// Translates a burst of reports to frames.
    pub fn translate<'a>(&mut self, payloads: impl IntoIterator<Item = &'a [u8]>) {
        self.now += STEP;
        let sender = self.sender;
        let burst = payloads.into_iter().map(|payload| (sender, payload));
        self.translator
            .process_burst(self.now, 0, burst, &mut self.links, &mut self.controls);
        self.links.flush(self.now);
    }

    /// Returns the frames that are not sent yet.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.links.frames().map(|(_, frame)| frame)
    }

    /// Marks the pending frames as sent.
    pub fn sent(&mut self) {
        self.links.sent();
    }

    /// Returns the counters of the translator.
    pub fn translated(&self) -> translator::Stats {
        self.translator.stats()
    }
}

impl Pipeline {
    /// Creates a pipeline with one collector that has these stores.
    pub fn new(wanted: &[StoreEntry]) -> Result<Self, CliError> {
        let near = Ipv4Addr::new(198, 51, 100, 1);
        let far = Ipv4Addr::new(198, 51, 100, 2);
        Self::with_path(Path::new(near.into(), far.into(), PORT), wanted)
    }

    /// Creates a pipeline with this RoCEv2 path.
    pub fn with_path(path: Path, wanted: &[StoreEntry]) -> Result<Self, CliError> {
        let (mut receiving, regions) = CollectorHalf::new(wanted)?;
        let links = links(&mut receiving.responder, path, &regions)?;
        let stores = (0_u16..)
            .zip(wanted)
            .map(|(region, wanted)| StoreEntry { region, ..*wanted })
            .collect();
        let memory = CollectorConfig {
            stores,
            ..CollectorConfig::default()
        };
        let config = translator::Config {
            collectors: vec![Some(memory)],
            ..translator::Config::default()
        };
        let sending = TranslatorHalf {
            translator: Translator::new(config).map_err(failed)?,
            links,
            controls: Controls::default(),
            sender: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 0xc0de)),
            now: 1_000_000_000,
        };
        Ok(Self { sending, receiving })
    }

    /// Splits the pipeline into two halves, for two threads.
    pub fn split(self) -> (TranslatorHalf, CollectorHalf) {
        (self.sending, self.receiving)
    }

    /// Returns the stores, in the order of the argument of [`Pipeline::new`].
    pub fn stores(&self) -> &[DtaStore] {
        &self.receiving.stores
    }

    /// Translates a burst of reports to frames.
    pub fn translate<'a>(&mut self, payloads: impl IntoIterator<Item = &'a [u8]>) {
        self.sending.translate(payloads);
    }

    /// Returns the number and the total bytes of the pending frames.
    pub fn pending(&self) -> (u64, u64) {
        self.sending.frames().fold((0, 0), |(frames, bytes), frame| {
            (frames + 1, bytes + frame.len() as u64)
        })
    }

    /// Delivers the pending frames to the responder and its responses to the requester, until no frame is pending.
    pub fn deliver(&mut self) {
        let Self { sending, receiving } = self;
        while sending.frames().len() > 0 {
            receiving.receive(sending.frames());
            sending.sent();
            let Responses { frames, ends } = &mut receiving.responses;
            let mut begin = 0;
            for end in ends.drain(..) {
                if let Ok(packet) = Packet::parse(&frames[begin..end]) {
                    sending.links.receive(sending.now, &packet);
                }
                begin = end;
            }
            frames.clear();
            sending.links.flush(sending.now);
        }
    }

    /// Flushes partial batches from the translator and delivers the frames.
    pub fn finish(&mut self) {
        for _ in 0..1000 {
            let sending = &mut self.sending;
            sending.now += STEP;
            let done = sending.translator.finish(sending.now, &mut sending.links);
            sending.links.flush(sending.now);
            self.deliver();
            if done {
                return;
            }
        }
    }

    /// Checks that all counters balance and that nothing was dropped or refused.
    ///
    /// # Errors
    /// Names the counters of what was lost or refused.
    pub fn check(&self) -> Result<(), CliError> {
        let translated = self.translated();
        let responded = self.responded();
        let lost: u64 = translated
            .reports
            .dropped
            .iter()
            .chain(&translated.reports.unreadable)
            .sum();
        let refused: u64 = responded.refused.iter().chain(&responded.dropped).sum();
        let unsent = self
            .sending
            .links
            .stats(0)
            .is_none_or(|stats| !stats.is_balanced());
        if lost > 0 || refused > 0 || unsent || !responded.is_balanced() {
            let controls = self.sending.controls.0;
            let reports = translated.reports;
            return Err(failed(format!(
                "{lost} reports dropped, {refused} frames refused, {controls} control messages: {reports:?}"
            )));
        }
        Ok(())
    }

    /// Counters of the translator.
    pub fn translated(&self) -> translator::Stats {
        self.sending.translated()
    }

    /// Counters of the responder.
    pub fn responded(&self) -> &responder::Stats {
        self.receiving.responded()
    }
}

/// Connects a requester to two queue pairs of this responder, one unreliable (UC) and one reliable (RC).
fn links(responder: &mut Responder, path: Path, regions: &[RemoteRegion]) -> Result<Links, CliError> {
    let config = Config {
        outbox_bytes: MAX_FRAMES * 512,
        outbox_frames: MAX_FRAMES,
        ..Config::default()
    };
    let mut links = Links::new(config).map_err(failed)?;
    let offer = links.offer(0).ok_or_else(|| failed("no link"))?;
    let back = Path {
        source: path.destination,
        destination: path.source,
        source_mac: path.destination_mac,
        destination_mac: path.source_mac,
        ..path
    };
    let ends = [(Transport::Uc, offer.unreliable), (Transport::Rc, offer.reliable)];
    let [unreliable, reliable] = ends.map(|(transport, end)| {
        let pair = QueuePairConfig {
            transport,
            path: back,
            peer: end.queue_pair,
            psn: end.psn,
            mtu: 4096,
            receives: u32::MAX,
        };
        responder.connect(&pair).map_err(failed)
    });
    let connection = Connection {
        path,
        mtu: 4096,
        unreliable: Some(unreliable?),
        reliable: Some(reliable?),
        atomic_depth: 128,
        regions,
        executed: None,
    };
    links.connect(0, &connection, 0).map_err(failed)?;
    Ok(links)
}
