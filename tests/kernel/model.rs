//! The kernel program with its tables and ring, and the model that predicts which datagrams it passes to user space.

use crate::*;

/// The program, its tables and its ring.
pub(crate) struct Kernel {
    pub(crate) object: Object,
    pub(crate) tables: Tables,
    pub(crate) ring: Ring,
}

impl Kernel {
    /// The program; `None`, reported as skipped, if this process may not load one.
    pub(crate) fn new(test: &str, sizes: Sizes) -> Option<Self> {
        Self::load(test, xdp::DETECT, &sizes.options(), sizes)
    }

    pub(crate) fn load(test: &str, object: &[u8], options: &LoadOptions<'_>, sizes: Sizes) -> Option<Self> {
        /// EPERM.
        const FORBIDDEN: i32 = 1;
        let mut object = match Object::load(object, options) {
            Ok(object) => object,
            Err(error) if error.errno() == Some(FORBIDDEN) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED {test}: loading BPF programs needs CAP_BPF and CAP_NET_ADMIN"
                );
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let tables = Tables::open(&object, sizes).unwrap();
        let ring = object.ring("to_user").unwrap();
        tables.set_ports(&[(32_766, 0)]);
        tables.set_sequence(true);
        Some(Self { object, tables, ring })
    }

    pub(crate) fn configure(&self, config: &Config) {
        let listed: Vec<(Prefix, &wire::Profile, Units)> = config
            .profiles
            .iter()
            .map(|(prefix, profile)| (*prefix, &profile.wire, units(profile)))
            .collect();
        let default = &config.default_profile;
        self.tables
            .set_profiles((&default.wire, units(default)), &listed)
            .unwrap();
        self.tables.set_detection(&config.detection).unwrap();
    }

    /// The record for a frame: reason, count and last of the sequence numbers suppressed before it, payload.
    pub(crate) fn give(&mut self, frame: &[u8]) -> Option<(Reason, u32, u32, Vec<u8>)> {
        let run = self.object.test_run("hopwise_detect", frame, 1).unwrap();
        assert_eq!(run.verdict, DROP);
        let mut reported = Vec::new();
        self.ring.consume(usize::MAX, |record| {
            let record = Record::read(record).unwrap();
            assert_eq!(record.frame, frame);
            reported.push((
                record.why,
                record.stream_count,
                record.stream_latest,
                record.payload.to_vec(),
            ));
        });
        assert!(reported.len() <= 1);
        reported.pop()
    }
}

pub(crate) fn units(profile: &Profile) -> Units {
    Units {
        stamp_ns: profile.timestamp_unit_ns.max(1),
        latency_ns: profile.latency_unit_ns.max(1),
        utilization: (profile.utilization_scale * 1e6).round().clamp(1.0, 1e6) as u32,
        synchronised: profile.clocks == Clocks::Synchronised,
        max_latency: if profile.max_hop_latency == 0 {
            u64::MAX
        } else {
            profile.max_hop_latency
        },
    }
}

/// A payload in Ethernet, IPv4 and UDP, sometimes with a VLAN tag.
pub(crate) fn frame(payload: &[u8], source: [u8; 4], tagged: bool) -> Vec<u8> {
    let (total, length) = (28 + payload.len() as u16, 8 + payload.len() as u16);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(source);
    frame.extend([192, 0, 2, 100]);
    for number in [40_000, 32_766, length, 0] {
        frame.extend(u16::to_be_bytes(number));
    }
    frame.extend(payload);
    frame
}

/// Returns how many values and headers were left out of reports: the collector counts them, so the kernel passes such reports.
fn left_out(collector: &Collector) -> u64 {
    let stats = collector.stats();
    let refused = stats.int_refused.iter().chain(&*stats.tunnel_refused);
    stats.implausible_latencies + refused.sum::<u64>()
}

/// Whether the kernel leaves a report to user space because the length of an IP header may cut INT off.
fn is_left_to_user_space(payload: &[u8], profile: &wire::Profile) -> bool {
    let mut decoder = Decoder::new(*profile);
    decoder.reports(payload).any(|report| match report {
        Ok(report) => report.int_refused == Some(wire::Refusal::BadIpHeader),
        Err(refusal) => refusal == wire::Refusal::BadIpHeader,
    })
}

/// Whether the hops of a report are not a path.
fn is_partial(report: &Report<'_>) -> bool {
    let has = |flag| report.flags.contains(flag);
    has(Flags::DROP)
        || has(Flags::INTERMEDIATE)
        || has(Flags::QUEUE) && !has(Flags::FLOW)
        || report.is_path_left_out() && !report.has_metadata()
        || report.hop_count() == 0
}

/// State of a flow that influences later events, in addition to values whose changes are always events.
pub(crate) type Hidden = ([bool; 4], u16, Vec<Option<u32>>);

/// The kernel, a collector that receives all datagrams, and one that receives those that the kernel passes.
pub(crate) struct Model {
    pub(crate) kernel: Kernel,
    pub(crate) all: Collector,
    pub(crate) few: Collector,
    pub(crate) collected: Log,
    pub(crate) reported: Log,
    pub(crate) config: Config,
    pub(crate) streams: BTreeMap<StreamId, Run>,
    pub(crate) applied: BTreeMap<StreamId, u32>,
    /// Flows that had a path of more hops than the kernel stores: all their reports are passed to user space.
    pub(crate) long: BTreeSet<String>,
    /// Flows of reports that the kernel left to user space, and of nodes that removed records: all their reports are passed.
    left: BTreeSet<String>,
    /// Flows of which no report with INT has come since a postcard: the next one is passed to user space.
    pub(crate) postcards: BTreeSet<String>,
    /// Flows of which no report with all hops has come since a part of the path: likewise.
    pub(crate) parts: BTreeSet<String>,
    pub(crate) up: u64,
    pub(crate) spare: u64,
    /// Some datagrams may be passed to user space for a reason that the collector does not show.
    pub(crate) spare_allowed: bool,
    pub(crate) now: u64,
}

impl Model {
    pub(crate) fn new(test: &str, config: Config, sizes: Sizes) -> Option<Self> {
        let kernel = Kernel::new(test, sizes)?;
        kernel.configure(&config);
        let mut few = Collector::new(config.clone());
        few.track_removals(64);
        Some(Self {
            kernel,
            all: Collector::new(config.clone()),
            few,
            collected: Log::default(),
            reported: Log::default(),
            config,
            streams: BTreeMap::new(),
            applied: BTreeMap::new(),
            long: BTreeSet::new(),
            left: BTreeSet::new(),
            postcards: BTreeSet::new(),
            parts: BTreeSet::new(),
            up: 0,
            spare: 0,
            spare_allowed: false,
            now: START,
        })
    }

    pub(crate) fn set_detection(&mut self, detection: &Arc<Detection>) {
        self.all.set_detection(Arc::clone(detection));
        self.few.set_detection(Arc::clone(detection));
        self.kernel.tables.set_detection(detection).unwrap();
    }

    pub(crate) fn profile(&self, source: Ipv4Addr) -> wire::Profile {
        let address = IpAddr::from(source);
        let mut listed: Vec<_> = self.config.profiles.iter().collect();
        listed.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let found = listed.iter().find(|(prefix, _)| prefix.contains(address));
        found.map_or(self.config.default_profile.wire, |(_, profile)| profile.wire)
    }

    pub(crate) fn give(&mut self, payload: &[u8], source: [u8; 4], tagged: bool) {
        self.give_frame(&frame(payload, source, tagged));
    }

    /// Gives both a frame that holds a datagram.
    pub(crate) fn give_frame(&mut self, frame: &[u8]) {
        let Ok(wire::Datagram {
            src: IpAddr::V4(source),
            payload,
            ..
        }) = wire::datagram(frame)
        else {
            return;
        };
        self.now += 1000;
        let mapped = source.to_ipv6_mapped().octets();
        let datagram = Datagram {
            payload,
            source: mapped,
            src_port: 40_000,
            listener: 0,
            received: self.now,
        };
        let profile = self.profile(source);
        let flows = flows(payload, &profile);
        let continues = self.continues_after_postcards(payload, &profile);
        let confirms = self.confirms_path(payload, &profile);
        let state = hidden(&self.all, &flows);
        let before = self.collected.events.len();
        let left_out_before = left_out(&self.all);
        self.all.handle(&[datagram], &mut self.collected);
        let change = self.collected.events.len() > before
            || hidden(&self.all, &flows) != state
            || left_out(&self.all) > left_out_before
            || continues;
        let odd = self.number(&datagram, &profile);
        // Postcards are always passed: the collector assembles them.
        let postcard = has_report(payload, &profile, is_postcard);
        // Parts of a path as well: the collector counts how long only they have come.
        let part = has_report(payload, &profile, may_lack_hops);
        let mut spare = self.spare_allowed || postcard || part;
        // The kernel has no path of a flow whose path is not by INT.
        let pathless = state
            .iter()
            .flatten()
            .any(|([.., by_postcards], nodes, _)| *by_postcards || *nodes == 0);
        spare |= pathless;
        for (key, hops, is_sf) in reports(payload, &profile) {
            let key = key.map(|key| key.to_string());
            if hops > xdp::FLOW_HOPS || is_sf {
                spare = true;
                self.long.extend(key.clone());
            }
            spare |= key.is_some_and(|key| self.long.contains(&key));
        }
        // Intermediate reports are always passed. Of their flows, and of a report with the end of the path, the collector may keep a path
        // that the kernel does not have.
        for flow in self.relieved(payload, &profile, &state) {
            spare = true;
            self.left.insert(flow);
        }
        spare |= confirms;
        // The kernel passes all later reports of the flow, too.
        let peeked = wire::peek(payload, &profile).ok().and_then(|peek| peek.flow);
        let known = flows.iter().copied().chain(peeked).map(|flow| flow.to_string());
        let known: Vec<String> = known.collect();
        let is_left = is_left_to_user_space(payload, &profile);
        if is_left {
            self.left.extend(known.iter().cloned());
        }
        let left = is_left || known.iter().any(|flow| self.left.contains(flow));
        spare |= left;
        let up = self.kernel.give(frame);
        if up.is_some() != (change || odd) && !(spare && up.is_some()) {
            let events: Vec<_> = self.collected.events[before..].iter().collect();
            panic!(
                "datagram {} of {source}: change {change}, odd {odd}, but up {up:?}; {events:?} {:?} -> {:?}\n{payload:02x?}",
                self.all.stats().datagrams,
                state,
                hidden(&self.all, &flows)
            );
        }
        let Some((why, count, latest, payload)) = up else {
            return;
        };
        self.up += 1;
        self.spare += u64::from(!(change || odd || postcard || part || confirms || pathless || left));
        self.catch_up(&datagram, &profile, (why, count, latest));
        self.few.handle(
            &[Datagram {
                payload: &payload,
                ..datagram
            }],
            &mut self.reported,
        );
        self.forget();
    }

    /// Advances time.
    pub(crate) fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        self.all.tick(self.now, &mut self.collected);
        self.few.tick(self.now, &mut self.reported);
        self.forget();
    }

    /// Removes from the kernel what the collector removed.
    fn forget(&mut self) {
        let tables = &self.kernel.tables;
        self.few.drain_removed(|removed| {
            match removed {
                Removed::Flow(key) => tables.forget_flow(&key),
                Removed::Path(key) => tables.forget_path(&key),
                Removed::Key { metric, node, part } => tables.forget_metric(metric, node, part),
                Removed::Overflow => panic!("more than fit"),
            };
        });
    }

    /// Flows of which the datagram has an intermediate report, or a report with the end of the path in `state`.
    fn relieved(&self, payload: &[u8], profile: &wire::Profile, state: &[Option<Hidden>]) -> Vec<String> {
        let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
        let (mut reports, mut found) = (decoder.reports(payload), Vec::new());
        while let Some(read) = reports.read(&mut report) {
            let Some(flow) = report.flow.filter(|_| read.is_ok()) else {
                continue;
            };
            let nodes: Vec<_> = report.hops().map(|hop| hop.node_id).collect();
            let mut paths = state.iter().flatten().map(|(.., path)| path);
            if report.flags.contains(Flags::INTERMEDIATE)
                || paths.any(|path| path.len() > nodes.len() && path.ends_with(&nodes))
            {
                found.push(flow.to_string());
            }
        }
        found
    }

    /// Whether the datagram has the first report with all hops of a flow after parts of its path.
    fn confirms_path(&mut self, payload: &[u8], profile: &wire::Profile) -> bool {
        let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
        let (mut reports, mut confirms) = (decoder.reports(payload), false);
        while let Some(read) = reports.read(&mut report) {
            let Some(flow) = report.flow.filter(|_| read.is_ok()) else {
                continue;
            };
            if may_lack_hops(&report) {
                self.parts.insert(flow.to_string());
            } else if !is_partial(&report) {
                confirms |= self.parts.remove(&flow.to_string());
            }
        }
        confirms
    }

    /// Whether the datagram has the first report with INT of a flow after postcards.
    fn continues_after_postcards(&mut self, payload: &[u8], profile: &wire::Profile) -> bool {
        let (mut decoder, mut report) = (Decoder::new(*profile), Report::EMPTY);
        let (mut reports, mut continues) = (decoder.reports(payload), false);
        while let Some(read) = reports.read(&mut report) {
            let Some(flow) = report.flow.filter(|_| read.is_ok() && !is_partial(&report)) else {
                continue;
            };
            if is_postcard(&report) {
                self.postcards.insert(flow.to_string());
            } else {
                continues |= self.postcards.remove(&flow.to_string());
            }
        }
        continues
    }

    /// Passes the numbers before a datagram to the second collector.
    pub(crate) fn catch_up(
        &mut self,
        datagram: &Datagram<'_>,
        profile: &wire::Profile,
        (why, count, latest): (Reason, u32, u32),
    ) {
        let Some((id, ..)) = stream(datagram, profile) else {
            return;
        };
        let applied = self.applied.entry(id).or_default();
        let suppressed = count.wrapping_sub(*applied) & 0x7fff_ffff;
        *applied = count;
        let run = Run {
            last: latest,
            count: suppressed.into(),
            same: why.has(Reason::SAME),
        };
        if suppressed > 0 {
            self.few
                .receive_run(&id, run, datagram.received, &mut self.reported);
        }
    }

    /// Whether the datagram's number is not the next of its stream.
    pub(crate) fn number(&mut self, datagram: &Datagram<'_>, profile: &wire::Profile) -> bool {
        let Some((id, number, refused)) = stream(datagram, profile) else {
            return false;
        };
        let circle = if id.version == 20 { (1 << 22) - 1 } else { u32::MAX };
        if refused && !self.streams.contains_key(&id) {
            return false;
        }
        let Some(run) = self.streams.get_mut(&id) else {
            self.streams.insert(
                id,
                Run {
                    last: number,
                    count: 0,
                    same: false,
                },
            );
            return true;
        };
        let next = if run.same {
            run.last
        } else {
            run.last.wrapping_add(1) & circle
        } == number;
        let same = if next { run.same } else { run.last == number };
        *run = Run {
            last: number,
            count: 0,
            same,
        };
        !next || refused
    }

    /// Checks that every datagram is counted once, in the kernel or in the collector that received it, and that both report the same.
    pub(crate) fn finish(&self) {
        // A key that has had one value expires earlier: the second collector receives fewer values.
        let stays = |event: &&Event| event.kind != Kind::Expired;
        let events = |log: &Log| log.events.iter().filter(stays).copied().collect::<Vec<_>>();
        same_events(&events(&self.reported), &events(&self.collected));
        let (few, all) = (self.few.stats(), self.all.stats());
        let kernel = self.kernel.tables.counters().unwrap();
        let sum = |at: fn(&Counters) -> u64, few: u64| at(&kernel) + few;
        assert_eq!(sum(|c| c.datagrams, few.datagrams), all.datagrams);
        assert_eq!(sum(|c| c.accepted, few.accepted), all.accepted);
        assert_eq!(sum(|c| c.reports, few.reports), all.reports);
        assert_eq!(sum(|c| c.flow_reports, few.flow_reports), all.flow_reports);
        assert_eq!(sum(|c| c.node_reports, few.node_reports), all.node_reports);
        assert_eq!(few.implausible_latencies, all.implausible_latencies);
        assert_eq!(few.int_refused, all.int_refused);
        assert_eq!(few.postcards, all.postcards);
        let paths = |collector: &Collector| {
            let path = |flow: FlowView<'_>| {
                (
                    flow.row.flow.to_string(),
                    (flow.path_basis, flow.path().collect::<Vec<_>>()),
                )
            };
            collector.flows().map(path).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(paths(&self.few), paths(&self.all));
        let both = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        assert_eq!(both(&kernel.refused.0, &few.refused.0), all.refused.0);
        assert_eq!(
            both(&kernel.refused_datagrams.0, &few.refused_datagrams.0),
            all.refused_datagrams.0
        );
        assert_eq!(kernel.to_user, self.up);
        assert_eq!((kernel.ring_full, kernel.contended), (0, 0));
    }
}
