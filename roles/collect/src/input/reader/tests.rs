//! Which time has passed for the collector while datagrams wait.

use crate::settings::{CollectSettings, Policy};
use std::{collections::VecDeque, net::SocketAddr};

use collector::Collector;
use nic::source::{Source, Stats};

use super::*;
use crate::{
    input::{Dispatch, gauge::InputGauge, gauge::Setup},
    live::Hub,
    pipeline::{Config, Pipeline},
    watermarks::Watermarks,
    worker::Worker,
};
use runtime::control::Control;

const SECOND: Nanos = 1_000_000_000;

/// Lends one burst per call: sequence numbers of reports, and their receive time.
struct Waiting {
    bursts: VecDeque<(Vec<u32>, Nanos)>,
    stop: Arc<AtomicBool>,
}

impl Source for Waiting {
    fn receive(&mut self, _: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, nic::Error> {
        let Some((numbers, received)) = self.bursts.pop_front() else {
            self.stop.store(true, Ordering::Relaxed);
            return Ok(0);
        };
        let reports: Vec<_> = numbers
            .iter()
            .map(|seq| {
                let mut report = testkit::vectors::bytes("tr20_emb");
                let first = u32::from_be_bytes([report[0], report[1], report[2], report[3]]);
                report[..4].copy_from_slice(&(first & !0x3f_ffff | seq).to_be_bytes());
                report
            })
            .collect();
        let packets: Vec<_> = reports
            .iter()
            .map(|data| Packet {
                data,
                source: SocketAddr::from(([10, 0, 0, 1], 1)),
                port: 0,
                received,
                truncated: false,
            })
            .collect();
        take(&packets);
        Ok(packets.len())
    }

    fn is_drained(&self) -> bool {
        self.bursts.is_empty()
    }

    fn stats(&mut self) -> Stats {
        Stats::default()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([0; 4], 0))
    }

    fn kind(&self) -> &'static str {
        "waiting"
    }
}

fn worker() -> Arc<std::sync::Mutex<Worker>> {
    let control = Control::new().0;
    let hub = Arc::new(Hub::new(1, 1, std::collections::BTreeMap::new()));
    let config = Config {
        batch: 1024,
        queue: 1 << 16,
        store_queue: 1 << 16,
        policy: Policy::Shed,
        store: None,
    };
    let pipeline = Pipeline::new(config, hub, control);
    let config = CollectSettings::default().collector_config(1, 0).unwrap();
    let outlet = pipeline.outlet().unwrap();
    let (worker, _) = Worker::new(Collector::new(config), outlet, Arc::from([]), None);
    Arc::new(std::sync::Mutex::new(worker))
}

fn reader(source: Box<dyn Source>, dispatch: &Dispatch) -> Reader {
    Reader {
        source: RxSource::Source(source),
        handler: dispatch.handler(),
        watermark: dispatch.watermark(),
        listener: 0,
        meter: InputGauge::new(&Setup::default(), true).meter(),
        ends_on_error: true,
        latest: None,
        clock: nic::time::now,
    }
}

#[test]
fn numbers_that_wait_in_a_socket_are_not_lost() {
    let worker = worker();
    let dispatch = Dispatch::Inline(Arc::clone(&worker));
    let stop = Arc::new(AtomicBool::new(false));
    // The program was stopped for ten seconds, and 2 is behind 40 and its successors.
    let since = nic::time::now() - 10 * SECOND;
    let bursts = [vec![0, 1, 3], (4..=40).collect(), vec![2], (41..50).collect()];
    let source = Waiting {
        bursts: bursts
            .into_iter()
            .zip(0..)
            .map(|(burst, n)| (burst, since + n * SECOND / 8))
            .collect(),
        stop: Arc::clone(&stop),
    };
    reader(Box::new(source), &dispatch).run(&stop);
    let worker = lock(&worker);
    let streams: Vec<_> = worker.collector().streams().collect();
    let [view] = &streams[..] else {
        panic!("one stream")
    };
    assert_eq!((view.datagrams, view.lost, view.reordered), (50, 0, 1));
}

/// Notes when it was asked first, and up to when everything had been passed on when it was asked again.
struct Asked {
    watermarks: Arc<Watermarks>,
    times: Arc<std::sync::Mutex<Vec<Nanos>>>,
    stop: Arc<AtomicBool>,
}

impl Source for Asked {
    fn receive(&mut self, _: u32, _: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, nic::Error> {
        let mut times = lock(&self.times);
        let now = nic::time::now();
        let time = if times.is_empty() {
            now
        } else {
            self.watermarks.time(now)
        };
        times.push(time);
        self.stop.store(times.len() > 1, Ordering::Relaxed);
        Ok(0)
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn stats(&mut self) -> Stats {
        Stats::default()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([0; 4], 0))
    }

    fn kind(&self) -> &'static str {
        "asked"
    }
}

#[test]
fn a_reader_holds_time_back_by_what_the_kernel_may_not_have_published() {
    let worker = worker();
    let dispatch = Dispatch::Inline(Arc::clone(&worker));
    let stop = Arc::new(AtomicBool::new(false));
    let times = Arc::default();
    let source = Asked {
        watermarks: lock(&worker).watermarks(),
        times: Arc::clone(&times),
        stop: Arc::clone(&stop),
    };
    reader(Box::new(source), &dispatch).run(&stop);
    let times = lock(&times);
    // A datagram that was stamped shortly before the first time may have come only after it.
    assert!(times[1] + MAX_DELIVERY_DELAY <= times[0], "{times:?}");
}

thread_local! {
    /// Time by which the clock of the thread's reader was set back, ns.
    static SET_BACK: std::cell::Cell<Nanos> = const { std::cell::Cell::new(0) };
}

/// Always has one more datagram; the clock is set back while the reader stops.
struct Endless {
    calls: u32,
    stop: Arc<AtomicBool>,
    begun: Instant,
    ended_late: Arc<AtomicBool>,
}

impl Source for Endless {
    fn receive(&mut self, _: u32, take: &mut dyn FnMut(&[Packet<'_>])) -> Result<usize, nic::Error> {
        if self.begun.elapsed() > 10 * DRAIN_TIMEOUT {
            self.ended_late.store(true, Ordering::Relaxed);
            return Ok(0);
        }
        self.calls += 1;
        self.stop.store(true, Ordering::Relaxed);
        if self.calls == 3 {
            SET_BACK.set(3_600 * SECOND);
        }
        take(&[Packet {
            data: &[0; 8],
            source: self.address(),
            port: 0,
            received: nic::time::now() - SET_BACK.get(),
            truncated: false,
        }]);
        Ok(1)
    }

    fn is_drained(&self) -> bool {
        false
    }

    fn stats(&mut self) -> Stats {
        Stats::default()
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([0; 4], 0))
    }

    fn kind(&self) -> &'static str {
        "endless"
    }
}

#[test]
fn an_endless_input_ends_in_time_also_when_the_clock_is_set_back() {
    let stop = Arc::new(AtomicBool::new(false));
    let ended_late = Arc::new(AtomicBool::new(false));
    let source = Endless {
        calls: 0,
        stop: Arc::clone(&stop),
        begun: Instant::now(),
        ended_late: Arc::clone(&ended_late),
    };
    let mut reader = reader(Box::new(source), &Dispatch::Inline(worker()));
    reader.clock = || nic::time::now() - SET_BACK.get();
    reader.run(&stop);
    assert!(!ended_late.load(Ordering::Relaxed));
}
