//! Cases `export-clickhouse`, `export-kafka`, `outlet` and `export-catch-up`: exports and outlets end to end, with a filled
//! store, and hopwise and a server as child processes. The baseline is the server's own load tool, or prepared requests.

mod servers;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use export::record::{EventRecord, Record, Stream};
use export::sink::clickhouse::ClickHouse;
use export::sink::kafka::{Compression, Kafka, Options};
use export::sink::{Batch, HttpSink as _, Request};
use terminal::CliError;

use self::servers::{Broker, Engine, Http, Sink};
use super::child::Program;
use super::harness::{Conditions, Failure, Outcome, Plan, median};
use super::{live, store};
use experiments::machine::Scratch;

/// Number of records in the store.
const EVENTS: u64 = 1_000_000;
/// Records in a request to ClickHouse.
const BATCH: u64 = 200_000;
/// Number of partitions of Kafka's topics.
const PARTITIONS: u32 = 4;
/// Time limit of an export.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval between polls of the delivery counter. A poll costs hopwise a millisecond, and delays both ends of a run equally.
const LOOK: Duration = Duration::from_millis(40);
/// Datagrams per second while an export catches up.
const RATE: u64 = 10_000;

/// Measures the export of events from the store into ClickHouse's engine (`export-clickhouse`).
pub(super) fn clickhouse(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let scratch = Scratch::new(name)?;
    let engine = Engine::start(scratch.path())?;
    let events = store::fill(&scratch.path().join("store"), events(plan))?;
    let mut runs = Runs::default();
    for run in 0..plan.runs {
        runs.add_engine(&engine, run, scratch.path(), events, |database| {
            let export = format!(
                "kind = \"clickhouse\"\nurl = \"http://{}\"\ndatabase = \"{database}\"\n",
                engine.address
            );
            Program::start(scratch.path(), &section(&export))
        })?;
    }
    let included = "read from the store, sent to ClickHouse's engine (chdb) behind an HTTP front of the tests, one request at a time, \
                    and stored with a second order; server and hopwise on the same cores";
    let own = format!("the same requests of {BATCH} rows, made before, one after the other");
    Ok(runs.outcome(
        name,
        Conditions::of("one record", included)
            .number("events", events)
            .text("own_load", own),
    ))
}

/// Measures an outlet: events from the topics of a broker into ClickHouse's engine (`outlet`).
pub(super) fn outlet(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let scratch = Scratch::new(name)?;
    let broker = Broker::start(scratch.path())?;
    let engine = Engine::start(scratch.path())?;
    let events = store::fill(&scratch.path().join("store"), events(plan))?;
    let kafka = format!("url = \"tcp://{}\"\n", broker.address);
    let export = format!("kind = \"kafka\"\n{kafka}partitions = {PARTITIONS}\n");
    apply(scratch.path(), &export)?;
    exported(scratch.path(), &export, events)?;
    let mut runs = Runs::default();
    for run in 0..plan.runs {
        runs.add_engine(&engine, run, scratch.path(), events, |database| {
            let state = scratch.path().join(database).display().to_string();
            let outlet = format!(
                "[outlet]\nstate = \"{state}\"\nstreams = [\"events\"]\nlinger = \"0s\"\n[outlet.kafka]\n{kafka}\
                 [outlet.clickhouse]\nurl = \"http://{}\"\ndatabase = \"{database}\"\n",
                engine.address
            );
            Program::start_outlet(scratch.path(), &outlet)
        })?;
    }
    let included = "read from a broker with 4 partitions, protobuf and LZ4, and inserted into ClickHouse's engine (chdb) behind an HTTP \
                    front of the tests; broker, engine and outlet on the same cores";
    let own = format!("requests of {BATCH} rows, made before, one after the other");
    Ok(runs.outcome(
        name,
        Conditions::of("one record", included)
            .number("events", events)
            .text("own_load", own),
    ))
}

/// Creates the tables in a new database.
fn tables(http: &mut Http, database: &str) -> Result<ClickHouse, CliError> {
    let sink = ClickHouse::new(database, "", 0).map_err(CliError::new)?;
    sink.schema(&[Stream::Events])
        .iter()
        .try_for_each(|statement| http.execute(statement).map(drop))?;
    Ok(sink)
}

/// Measures the time that the engine needs for prepared requests, ns per row.
fn own_load(http: &mut Http, events: u64) -> Result<f64, CliError> {
    let sink = tables(http, "own")?;
    let requests = requests(&sink, events)?;
    let begun = Instant::now();
    requests
        .iter()
        .try_for_each(|request| http.post(&request.target, &request.body))?;
    let ns = begun.elapsed().as_nanos() as f64 / events as f64;
    // Otherwise the engine would still merge these rows while it accepts hopwise's: both loads must begin at rest.
    http.execute("DROP DATABASE own SYNC")?;
    Ok(ns)
}

/// Checks that every event was stored, then drops the database.
fn all_are_there(http: &mut Http, sink: &ClickHouse, events: u64) -> Result<(), CliError> {
    let table = sink.table(Stream::Events);
    let stored = http.execute(&format!("SELECT uniqExact(id) FROM {table} FORMAT TSV"))?;
    check_stored(events, stored.trim())?;
    http.execute(&format!("DROP DATABASE {} SYNC", sink.database()))
        .map(drop)
}

/// Measures the export of events from the store to a broker (`export-kafka`).
pub(super) fn kafka(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let scratch = Scratch::new(name)?;
    let broker = Broker::start(scratch.path())?;
    let events = store::fill(&scratch.path().join("store"), events(plan))?;
    let size = message_size()?;
    let mut runs = Runs::default();
    for run in 0..plan.runs {
        let [own, hopwise] = ["own", "hopwise"].map(|prefix| {
            format!("kind = \"kafka\"\nurl = \"tcp://{}\"\nprefix = \"{prefix}{run}\"\npartitions = {PARTITIONS}\n", broker.address)
        });
        apply(scratch.path(), &own)?;
        apply(scratch.path(), &hopwise)?;
        runs.own
            .push(broker.own_load(&format!("own{run}.events.v1"), events, size)?);
        runs.add(exported(scratch.path(), &hopwise, events)?);
    }
    let included = "read from the store, sent as protobuf with keys and headers, LZ4, acks = all, to one broker with 4 partitions; \
                    broker and hopwise on the same cores";
    let own = format!("ProducerPerformance, records of {size} bytes, LZ4, acks = all, batches of 256 KiB");
    Ok(runs.outcome(
        name,
        Conditions::of("one record", included)
            .number("events", events)
            .text("own_load", own),
    ))
}

/// Measures reception at a fixed rate while an export catches up, and without an export (`export-catch-up`).
pub(super) fn catch_up(name: &'static str, plan: &Plan) -> Result<Outcome, Failure> {
    let sink = Sink::start()?;
    let export = format!("kind = \"clickhouse\"\nurl = \"http://{}\"\n", sink.address);
    let span = plan.each.max(Duration::from_millis(200));
    let mut ns = Vec::new();
    let mut alone = Received::default();
    let mut beside = Received::default();
    let mut behind = 0;
    for _ in 0..plan.runs {
        let scratch = Scratch::new(name)?;
        behind = store::fill(&scratch.path().join("store"), events(plan))?;
        alone.add(&received(scratch.path(), "", span, 0)?);
        let _ = fs::remove_dir_all(scratch.path().join("store/export"));
        let with = received(scratch.path(), &section(&export), span, behind)?;
        ns.push(with.seconds * 1e9 / behind as f64);
        beside.add(&with);
    }
    let included = "1 M stored events exported to a server that only reads, while reports arrive at a fixed rate: received, stored, \
                    and exported, too";
    let conditions = Conditions::of("one stored record", included)
        .number("events", behind)
        .number("reports_per_s", RATE)
        .number("sent", beside.sent)
        .number("lost", beside.lost)
        .number("lost_without_export", alone.lost)
        .number("resident_bytes", beside.resident)
        .number("resident_bytes_without_export", alone.resident);
    Ok(Outcome::new(name, ns, conditions))
}

/// Counters of reception: sums over runs, and the maximum of memory (bytes).
#[derive(Default, Debug)]
struct Received {
    sent: u64,
    lost: u64,
    resident: u64,
    /// Time until the export had caught up, seconds.
    seconds: f64,
}

impl Received {
    fn add(&mut self, run: &Self) {
        self.sent += run.sent;
        self.lost += run.lost;
        self.resident = self.resident.max(run.resident);
    }
}

/// Sends reports for at least `span`, and until `behind` records have been exported.
fn received(dir: &Path, extra: &str, span: Duration, behind: u64) -> Result<Received, Failure> {
    let begun = Instant::now();
    let program = Program::start(dir, extra)?;
    let mut sender = live::Steady::to(program.input()?, RATE)?;
    let mut run = Received::default();
    let mut is_behind = true;
    while is_behind || begun.elapsed() < span {
        sender.send_for(Duration::from_millis(20))?;
        run.resident = run.resident.max(program.resident());
        if is_behind && program.sum("hopwise_export_delivered_total")? >= behind {
            (is_behind, run.seconds) = (false, begun.elapsed().as_secs_f64());
        }
        if begun.elapsed() > PATIENCE {
            return Err(CliError::new("the export did not catch up in time").into());
        }
    }
    program.settle(PATIENCE);
    let usage = program.usage()?;
    run.sent = sender.sent();
    run.lost = run.sent.abs_diff(usage.received) + usage.dropped;
    Ok(run)
}

fn events(plan: &Plan) -> u64 {
    if plan.is_trial() { 20_000 } else { EVENTS }
}

/// Results of all runs, ns per record.
#[derive(Default, Debug)]
struct Runs {
    own: Vec<f64>,
    ours: Vec<f64>,
    /// CPU time of hopwise.
    on_core: Vec<f64>,
    /// Maximum resident memory of hopwise, bytes.
    resident: u64,
}

impl Runs {
    fn add(&mut self, exported: Delivered) {
        self.ours.push(exported.ns);
        self.on_core.push(exported.on_core);
        self.resident = self.resident.max(exported.resident);
    }

    /// Adds the baseline of the engine, and the delivery by the program that `start` starts for a database.
    fn add_engine(
        &mut self,
        engine: &Engine,
        run: u32,
        dir: &Path,
        events: u64,
        start: impl Fn(&str) -> Result<Program, CliError>,
    ) -> Result<(), Failure> {
        let mut http = Http::connect(engine.address)?;
        self.own.push(own_load(&mut http, events)?);
        let database = format!("hopwise{run}");
        let ours = tables(&mut http, &database)?;
        // Removes the cursor of an earlier run, so that the export starts at the first event.
        let _ = fs::remove_dir_all(dir.join("store/export"));
        self.add(delivered(&start(&database)?, events)?);
        Ok(all_are_there(&mut http, &ours, events)?)
    }

    fn outcome(self, name: &'static str, conditions: Conditions) -> Outcome {
        let shares = self
            .own
            .iter()
            .zip(&self.ours)
            .map(|(own, ours)| own / ours)
            .collect();
        let conditions = conditions
            .ratio("own_ns_per_record", median(self.own))
            .ratio("of_own_load", median(shares))
            .ratio("hopwise_ns_on_core", median(self.on_core))
            .number("resident_bytes", self.resident);
        Outcome::new(name, self.ours, conditions)
    }
}

fn section(export: &str) -> String {
    format!("[exports.bench]\nstreams = [\"events\"]\nlinger = \"0s\"\n{export}")
}

/// The delivery of records, measured from the first ones that arrive: time and CPU time, ns per record.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    ns: f64,
    on_core: f64,
    resident: u64,
}

/// Exports all events, from the first one on.
fn exported(dir: &Path, export: &str, events: u64) -> Result<Delivered, Failure> {
    // Removes the cursor of an earlier run.
    let _ = fs::remove_dir_all(dir.join("store/export"));
    delivered(&Program::start(dir, &section(export))?, events)
}

/// Waits until `events` records are delivered.
fn delivered(program: &Program, events: u64) -> Result<Delivered, Failure> {
    // Each measurement: time, records delivered by then, and usage by then.
    let begun = (Instant::now(), 0, program.usage()?);
    let mut first = None;
    let mut resident = 0;
    loop {
        let delivered = program.sum("hopwise_export_delivered_total")?;
        let now = Instant::now();
        resident = program.resident().max(resident);
        if delivered >= events {
            // If all records arrived between two polls, the start of the program is the only earlier measurement.
            let (at, before, used) = first.filter(|(_, before, _)| *before < events).unwrap_or(begun);
            let count = (events - before) as f64;
            let used = program.usage()?.since(&used);
            let ns = (now - at).as_nanos() as f64 / count;
            return Ok(Delivered {
                ns,
                on_core: (used.user + used.system) * 1e9 / count,
                resident,
            });
        }
        if delivered > 0 && first.is_none() {
            first = Some((now, delivered, program.usage()?));
        }
        if begun.0.elapsed() > PATIENCE {
            let words = format!("{delivered} of {events} records were delivered in {PATIENCE:?}");
            return Err(CliError::new(words).into());
        }
        thread::sleep(LOOK);
    }
}

/// Creates the topics, and retries until the broker is ready.
fn apply(dir: &Path, export: &str) -> Result<(), CliError> {
    let begun = Instant::now();
    loop {
        match Program::schema(dir, &section(export), "bench") {
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Encodes the events of the store as insert requests.
fn requests(sink: &ClickHouse, events: u64) -> Result<Vec<Request>, CliError> {
    (0..events)
        .step_by(BATCH as usize)
        .map(|first| {
            let records: Vec<Record> = (first..events.min(first + BATCH)).map(record).collect();
            let records: Vec<&Record> = records.iter().collect();
            let batch = Batch {
                stream: Stream::Events,
                records: &records,
                collector: "bench",
            };
            sink.request(&batch)
                .ok_or_else(|| CliError::new("there are no rows"))
        })
        .collect()
}

fn record(number: u64) -> Record {
    let event = store::event(number);
    Record::Event(Box::new(EventRecord {
        event,
        rule: None,
        path: Vec::new(),
        first: None,
    }))
}

/// Returns the mean bytes of a Kafka message: key, value and headers, without compression.
fn message_size() -> Result<usize, CliError> {
    let kafka = Kafka::new(&Options {
        compression: Compression::None,
        ..Options::default()
    })
    .map_err(CliError::new)?;
    let records: Vec<Record> = (0..1000).map(record).collect();
    let records: Vec<&Record> = records.iter().collect();
    let batch = Batch {
        stream: Stream::Events,
        records: &records,
        collector: "bench",
    };
    let mut exchange = kafka
        .begin(&batch)
        .ok_or_else(|| CliError::new("there are no messages"))?;
    exchange.spread(1);
    let mut bytes = Vec::new();
    exchange
        .partitions()
        .into_iter()
        .for_each(|partition| exchange.write(partition, None, &mut bytes));
    Ok(bytes.len() / records.len())
}

fn check_stored(events: u64, stored: &str) -> Result<(), CliError> {
    if stored == events.to_string() {
        return Ok(());
    }
    Err(CliError::new(format!(
        "{events} events were exported, and {stored} are there"
    )))
}
