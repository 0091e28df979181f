//! The server behind `run`, `console`, `outlet` and `demo`: starts the configured roles in order, reloads the configuration
//! on SIGHUP or an API request, and stops in reverse order. The first thread that fails stops everything.
//!
//! Order of the start, in which privileges determine much:
//! 1. sockets of all roles, while all capabilities are available; a port in use is the most common failure;
//! 2. capabilities are dropped, except those needed to reopen interfaces;
//! 3. RDMA devices, which only the credentials that opened them may use;
//! 4. store, workers, receivers; then manager, exports and, last, the API.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    thread::JoinHandle,
    time::Duration,
};

use collector::{Access, Collector};
use detect::Detection;
use tokio::sync::Semaphore;

use api::Api;

use crate::{list_events::ListEvents, log::Log};
use ::export_role::role::{self as export_role, Silences};
use aggregate_role::role as aggregator;
use cli::silences::NotedSilences;
use collect_role::{
    capabilities::CapabilityDrop,
    fanout::{self, Ledger, LoadSender, Plan},
    flight_recorder::{FlightGauge, FlightRecorder, Tap},
    hop_recorder::HopRecorder,
    input::{self, Dispatch, Input, InputGauge, Reading, watch::Watch},
    known_links::{self, KnownLinks},
    live::Hub,
    monitor::Monitor,
    pipeline::{self, Pipeline, RuleNames},
    recorder::ReportRecorder,
    settings::CollectSettings,
    triggers::Triggers,
    watermarks::Watermarks,
    worker::{Worker, WorkerHandle},
};
use config::{Overrides, Settings, build};
use dta::settings::{MemoryMode, MemorySettings};
use dta_role::{
    exchange::secret::NewSecret,
    memory::{self, EventSink},
    reporter,
    translator::{
        self,
        settings::{TranslatorSettings, TransportMode},
    },
};
use history::{History, Local, Remote, alerts::Notes};
use manage_role::role as manager_role;
use net::{dns::Resolver, tls};
use runtime::{
    control::{Control, IntentDetection, Message, Reloaded},
    current::Current,
    host,
    intercept::{self, SwitchEnd, TranslatorEnd},
    lock::lock,
    notify, save,
};
use settings::values::Size;
use switch_role::role as switch;
use terminal::CliError;

/// Maximum wait for a worker to apply a reload.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Server with its roles. Nothing runs before [`Server::start`].
#[derive(Debug)]
pub(crate) struct Server {
    file: Option<PathBuf>,
    overrides: Overrides,
    log: Log,
    active_config: Arc<Current<Settings>>,
    /// Collector part of the active configuration; inputs read it when they are opened again.
    collect_config: Arc<Current<CollectSettings>>,
    hub: Arc<Hub>,
    control: Control,
    messages: Receiver<Message>,
    pipeline: Pipeline,
    collecting: Option<Collecting>,
    switch: Option<switch::Role>,
    aggregator: Option<aggregator::Role>,
    reporter: Option<reporter::Role>,
    translator: Option<translator::Role>,
    memory: Option<memory::Role>,
    manager: Option<manager_role::Role>,
    exports: Option<export_role::Role>,
    /// Queues of hop records on their way to exports.
    hops: export_role::Hops,
    api: Option<Api>,
    tls: Arc<tls::Endpoint>,
    generation: u32,
    /// Rules and thresholds that intents add to the configured ones.
    intent_detection: Arc<IntentDetection>,
    /// Devices inside this process (the demo's switches), until the manager takes them.
    devices: Option<manager_role::Local>,
    /// True if `start` drops capabilities that are no longer needed.
    drops_privileges: bool,
    /// True if state for the next start could not be saved.
    lost_state: bool,
}

/// Running receivers and workers of the collector. One worker runs inside the receivers' threads; several have threads and
/// queues.
#[derive(Debug, Default)]
struct Collecting {
    stop: Arc<AtomicBool>,
    receivers: Vec<JoinHandle<()>>,
    watch: Option<Watch>,
    /// Loss counters of each input, with several workers; finished after its receivers have ended.
    ledgers: Vec<Arc<Ledger>>,
    workers: Vec<JoinHandle<()>>,
    /// The only worker, shared by the receivers; finished after they have ended.
    inline: Option<Arc<Mutex<Worker>>>,
    handles: Vec<WorkerHandle>,
    flight_recorder: Option<JoinHandle<()>>,
}

/// Addresses of a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Address of the API and the web pages.
    pub(crate) api: SocketAddr,
    /// Addresses of the collector's input sockets.
    pub(crate) inputs: Vec<SocketAddr>,
    /// Address of the aggregator's socket, if that role runs.
    pub(crate) aggregator: Option<SocketAddr>,
    /// Addresses on which the translator receives DTA reports, one per collector; empty without a translator.
    pub(crate) dta: Vec<SocketAddr>,
    /// Addresses of collector memory, if there is any: (RoCEv2, exchange of connection parameters).
    pub(crate) memory: Option<(SocketAddr, SocketAddr)>,
}

/// Handles of sockets and workers for the monitor.
#[derive(Default)]
struct Gauges {
    workers: Vec<WorkerHandle>,
    inputs: Vec<Arc<InputGauge>>,
    fanouts: Vec<Arc<fanout::FanoutGauge>>,
    flight_recorder: Option<FlightGauge>,
}

/// Opened but not yet started roles of Direct Telemetry Access.
struct Dta {
    translator: Option<translator::Ready>,
    memory: Option<memory::Ready>,
}

impl Dta {
    /// Opens all sockets and memory, but not RDMA devices.
    fn open(settings: &Settings, intercept: Option<TranslatorEnd>) -> Result<Self, CliError> {
        let (translator, memory) = Self::rdma_settings(settings);
        let memory = memory.filter(|memory| memory.mode != MemoryMode::Verbs);
        let memory = memory
            .map(|memory| input::inside(&settings.collector, || memory::Ready::open(memory))?)
            .transpose()?;
        let mut translator = translator.cloned();
        if let (Some(translator), Some(memory)) = (&mut translator, &memory) {
            // Port 0 means the memory of this process, whose port the kernel has assigned by now.
            let exchanges = translator
                .collectors
                .iter_mut()
                .filter_map(|collector| collector.exchange.as_mut());
            exchanges
                .filter(|exchange| exchange.port() == 0)
                .for_each(|exchange| *exchange = memory.exchange());
        }
        let mut exchanges = translator
            .iter()
            .flat_map(|dta| &dta.collectors)
            .filter_map(|collector| collector.exchange.as_ref());
        if exchanges.any(|exchange| exchange.port() == 0) {
            return Err(CliError::new(
                "[translator] collectors: exchange port 0 means the memory of this process, which has none open yet: add \
                 [collector.memory] (mode \"socket\" or \"xdp\"), or write the collector's port",
            ));
        }
        let translator = translator
            .as_ref()
            .map(|settings| translator::Ready::open(settings, intercept))
            .transpose()?;
        Ok(Self { translator, memory })
    }

    /// Opens RDMA devices. Linux allows the use of a device only with the credentials of the thread that opened it, so this
    /// runs after privileges were dropped; sockets and other privileged resources are opened before.
    fn open_devices(&mut self, settings: &Settings) -> Result<(), CliError> {
        if let Some(translator) = &mut self.translator {
            translator.open_device()?;
        }
        if self.memory.is_none() {
            let (_, memory) = Self::rdma_settings(settings);
            self.memory = memory.map(memory::Ready::open).transpose()?;
        }
        Ok(())
    }

    /// Returns the settings of the roles that may use RDMA: the translator and collector memory.
    fn rdma_settings(settings: &Settings) -> (Option<&TranslatorSettings>, Option<&MemorySettings>) {
        let translator = settings.translator.as_ref();
        (translator, settings.collector.memory.as_ref())
    }

    fn has_rdma_devices(settings: &Settings) -> bool {
        let (translator, memory) = Self::rdma_settings(settings);
        translator.is_some_and(|dta| dta.mode == TransportMode::Verbs)
            || memory.is_some_and(|memory| memory.mode == MemoryMode::Verbs)
    }
}

impl Server {
    /// Creates a server with these settings. A reload reads `file` again.
    pub(crate) fn new(settings: Settings, file: Option<PathBuf>, log: Log) -> Self {
        let (control, messages) = Control::new();
        let hub = Arc::new(Hub::new(
            settings.api.max_streams,
            settings.api.stream_queue,
            settings.collect().drop_reasons(),
        ));
        let config = pipeline::Config {
            batch: settings.collector.batch,
            queue: byte_count(settings.collector.result_queue),
            store_queue: byte_count(settings.store.queue),
            policy: settings.store.policy,
            store: settings.store.enabled.then(|| build::store(&settings)),
        };
        let pipeline = Pipeline::new(config, Arc::clone(&hub), control.clone());
        Self {
            file,
            overrides: Overrides::default(),
            log,
            collect_config: Arc::new(Current::new(settings.collect())),
            active_config: Arc::new(Current::new(settings)),
            hub,
            control,
            messages,
            pipeline,
            collecting: None,
            switch: None,
            aggregator: None,
            reporter: None,
            translator: None,
            memory: None,
            manager: None,
            exports: None,
            hops: export_role::Hops::default(),
            api: None,
            tls: Arc::default(),
            generation: 0,
            intent_detection: Arc::default(),
            devices: None,
            drops_privileges: false,
            lost_state: false,
        }
    }

    /// Sets the command line's overrides, which `settings` already contains; a reload applies them again.
    pub(crate) fn with_overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Gives the manager devices inside this process.
    pub(crate) fn with_devices(mut self, devices: manager_role::Local) -> Self {
        self.devices = Some(devices);
        self
    }

    /// Drops capabilities as `[collector] capabilities` requires; only in a process that runs nothing but the server.
    pub(crate) fn dropping_capabilities(mut self) -> Self {
        self.drops_privileges = true;
        self
    }

    /// Starts all roles. After an error, everything is stopped again.
    ///
    /// # Errors
    /// A part cannot start; the message names the first one and a remedy.
    pub(crate) fn start(&mut self) -> Result<Addresses, CliError> {
        let result = self.start_all();
        if result.is_err() {
            self.stop();
        }
        result
    }

    /// Starts all roles in the order described at the top of this file; returns the addresses that they listen on.
    fn start_all(&mut self) -> Result<Addresses, CliError> {
        let settings = self.active_config.get();
        self.tls.replace(
            settings
                .api
                .server()
                .map_err(|problem| CliError::new(problem.message))?,
        );
        // Sockets first: a port in use is the most common failure, and must leave no trace in the store.
        let inputs = if settings.collects() {
            input::open(&self.collect_config)?
        } else {
            Vec::new()
        };
        let aggregator = settings
            .aggregator
            .as_ref()
            .map(|role| aggregator::Ready::open(role, build::aggregator_profile(role, &settings)))
            .transpose()?;
        let reporter = settings
            .reporter
            .as_ref()
            .map(reporter::Ready::open)
            .transpose()?;
        let (switch_end, translator_end) = intercept(&settings)?.unzip();
        let mut dta = Dta::open(&settings, translator_end)?;
        let switch = settings.switch.clone();
        let switch = switch
            .map(|switch| switch::Ready::open(switch, switch_end))
            .transpose()?;
        let namespaces =
            manager_role::Namespaces::open(settings.manager.as_ref(), &settings.inventory, &self.control)?;
        let reopens_inputs = inputs.iter().any(Input::is_watched);
        let reopens_others = switch.is_some() || dta.memory.as_ref().is_some_and(memory::Ready::opens_again);
        let has_rdma = Dta::has_rdma_devices(&settings);
        let capability_drop = self.drops_privileges.then(|| {
            CapabilityDrop::begin(
                settings.collector.capabilities,
                reopens_inputs || reopens_others,
                has_rdma,
            )
        });
        let watch = reopens_inputs.then(|| Watch::start(&self.control)).transpose()?;
        self.switch = switch.map(|switch| switch.start(&self.control)).transpose()?;
        if let Some(memory) = &mut dta.memory {
            memory.start_reattacher(&self.control)?;
        }
        if let Some(capability_drop) = capability_drop {
            capability_drop.end();
        }
        dta.open_devices(&settings)?;
        self.aggregator = aggregator.map(|ready| ready.start(&self.control)).transpose()?;
        self.reporter = reporter.map(|ready| ready.start(&self.control)).transpose()?;
        self.hops = export_role::Hops::open(&settings.all_exports())?;
        let gauges = if settings.collects() {
            self.pipeline.start()?;
            self.start_collecting(&settings, inputs, watch)?
        } else {
            Gauges::default()
        };
        self.start_dta(&settings, dta)?;
        let inputs = gauges
            .inputs
            .iter()
            .filter_map(|input| input.setup().address)
            .collect();
        let monitor = Arc::new(self.monitor(gauges));
        let notes = notes(&settings)?;
        if let Some(configuration) = settings.managed() {
            let monitor = Arc::clone(&monitor);
            self.manager = Some(manager_role::Role::start(
                configuration,
                monitor,
                self.devices.take(),
                namespaces,
                &self.control,
            )?);
        }
        if !settings.exports.is_empty() || settings.outlet.is_some() {
            self.exports = Some(self.start_exports(&settings, notes.clone())?);
        }
        let context = self.context(&settings, monitor, notes)?;
        let mut api = Api::new(settings.api.listen, context);
        let result = api.start();
        let address = api.address().unwrap_or(settings.api.listen);
        self.api = Some(api);
        result?;
        notify::ready();
        let aggregator = self.aggregator.as_ref().map(aggregator::Role::address);
        let dta = self
            .translator
            .as_ref()
            .map(|role| role.addresses().to_vec())
            .unwrap_or_default();
        let memory = self.memory.as_ref().map(memory::Role::addresses);
        Ok(Addresses {
            api: address,
            inputs,
            aggregator,
            dta,
            memory,
        })
    }

    fn start_exports(
        &self,
        settings: &Settings,
        notes: Option<Arc<Notes>>,
    ) -> Result<export_role::Role, CliError> {
        let silences = notes.map(|notes| Arc::new(NotedSilences(notes)) as Arc<dyn Silences>);
        export_role::Role::start(&settings.all_exports(), &self.hops, &silences, &self.control)
    }

    fn monitor(
        &self,
        Gauges {
            workers,
            inputs,
            fanouts,
            flight_recorder,
        }: Gauges,
    ) -> Monitor {
        let monitor = Monitor::new(
            workers,
            inputs,
            fanouts,
            self.pipeline.gauge(),
            Arc::clone(&self.hub),
        );
        monitor.with_flight_recorder(flight_recorder)
    }

    /// Collects the parts of the server that the API's handlers use.
    fn context(
        &self,
        settings: &Settings,
        monitor: Arc<Monitor>,
        notes: Option<Arc<Notes>>,
    ) -> Result<api::Context, CliError> {
        let repeats_alerts = notes.is_some() && settings.exports.values().any(export_role::notifies_people);
        Ok(api::Context {
            repeats_alerts,
            known_links: Arc::new(known_links(settings)),
            notes,
            config_file: self.file.clone(),
            rule_file_lock: Arc::default(),
            active_config: Arc::clone(&self.active_config),
            monitor,
            hub: Arc::clone(&self.hub),
            control: self.control.clone(),
            switch: self.switch.as_ref().map(switch::Role::handle),
            aggregator: self.aggregator.as_ref().map(aggregator::Role::handle),
            reporter: self.reporter.as_ref().map(reporter::Role::handle),
            translator: self.translator.as_ref().map(translator::Role::handle),
            memory: self.memory.as_ref().map(memory::Role::handle),
            manager: self.manager.as_ref().map(manager_role::Role::handle),
            exports: self.exports.as_ref().map(export_role::Role::handle),
            dns: settings
                .names
                .dns
                .then(Resolver::start)
                .transpose()?
                .map(Arc::new),
            tls: Arc::clone(&self.tls),
            history: history(settings, self.pipeline.moved_files())?,
            query_permits: Arc::new(Semaphore::new(settings.api.max_queries)),
            read_permits: Arc::new(Semaphore::new(api::MAX_READS)),
            page_permits: Arc::new(Semaphore::new(api::MAX_PAGES)),
            unsent_budget: Arc::new(Semaphore::new(api::UNSENT_BUDGET_KIB)),
        })
    }

    fn start_dta(&mut self, settings: &Settings, Dta { translator, memory }: Dta) -> Result<(), CliError> {
        if let Some(memory) = memory {
            let sender = settings
                .collects()
                .then(|| queue_sender(&self.pipeline))
                .transpose()?;
            let sink = sender.map(|sender| -> Box<dyn EventSink> {
                let rules = rule_names(settings, &self.intent_detection);
                Box::new(ListEvents { sender, rules })
            });
            self.memory = Some(memory.start(&self.control, sink)?);
        }
        self.translator = translator
            .map(|translator| translator.start(&self.control))
            .transpose()?;
        Ok(())
    }

    /// Starts the workers, the flight recorder and the receivers; returns their gauges for the API.
    fn start_collecting(
        &mut self,
        settings: &Settings,
        inputs: Vec<Input>,
        watch: Option<Watch>,
    ) -> Result<Gauges, CliError> {
        let mut gauges = Gauges {
            inputs: inputs.iter().map(Input::gauge).collect(),
            ..Gauges::default()
        };
        let workers = settings.collector.workers;
        let mut queues = Vec::new();
        // From here on `stop` must find the threads, even if a later step fails.
        self.collecting = Some(Collecting {
            watch,
            ..Collecting::default()
        });
        let watermarks = Arc::<Watermarks>::default();
        let access = Arc::new(settings.collect().access(inputs.iter().map(Input::entry)));
        let (recorder, taps) = flight_recorder(settings, workers).unzip();
        let triggers = recorder.as_ref().map(FlightRecorder::triggers);
        gauges.flight_recorder = recorder.as_ref().map(FlightRecorder::gauge);
        let mut taps = taps.unwrap_or_default().into_iter();
        for index in 0..workers {
            let (worker, handle) = self.worker(settings, workers, &access, triggers.clone())?;
            let worker = worker
                .with_tap(taps.next())
                .with_watermarks(Arc::clone(&watermarks));
            let Some(collecting) = &mut self.collecting else {
                break;
            };
            collecting.handles.push(handle);
            if workers == 1 {
                collecting.inline = Some(Arc::new(Mutex::new(worker)));
            } else {
                let (queue, shares) = fanout::load_queue(byte_count(settings.collector.worker_queue));
                queues.push(queue);
                collecting.workers.push(
                    self.control
                        .spawn(&format!("worker-{index}"), move || fanout::work(&shares, worker))?,
                );
            }
        }
        // The recorder's thread ends when all trigger senders are dropped; only the workers may hold one.
        drop(triggers);
        if let (Some(recorder), Some(collecting)) = (recorder, &mut self.collecting) {
            let reader = ReportRecorder::new(settings.collect().hop_profiles(), Arc::clone(&access));
            let thread = recorder.start(reader, queue_sender(&self.pipeline)?, &self.control)?;
            collecting.flight_recorder = Some(thread);
        }
        self.start_receivers(settings, inputs, &queues, &access, &watermarks, &mut gauges)?;
        Ok(gauges)
    }

    fn start_receivers(
        &mut self,
        settings: &Settings,
        inputs: Vec<Input>,
        queues: &[LoadSender],
        access: &Arc<Access>,
        watermarks: &Arc<Watermarks>,
        gauges: &mut Gauges,
    ) -> Result<(), CliError> {
        let Some(collecting) = &mut self.collecting else {
            return Ok(());
        };
        gauges.workers.clone_from(&collecting.handles);
        let profiles = Arc::new(settings.collect().wire_profiles());
        for input in inputs {
            let dispatch = match &collecting.inline {
                Some(worker) => Dispatch::Inline(Arc::clone(worker)),
                None => {
                    let sender = queue_sender(&self.pipeline)?;
                    let seed = host::seed();
                    let ledger = Arc::new(Ledger::new(sender, settings.collector.max_sources, seed));
                    gauges.fanouts.push(ledger.gauge());
                    collecting.ledgers.push(Arc::clone(&ledger));
                    let aggregate_ports = settings.collect().aggregate_ports();
                    Dispatch::Spread(Plan {
                        workers: queues.to_vec(),
                        profiles: Arc::clone(&profiles),
                        access: Arc::clone(access),
                        seed,
                        listener: input.listener(),
                        ledger,
                        aggregate_ports,
                        watermarks: Arc::clone(watermarks),
                    })
                }
            };
            let capabilities = settings.collector.capabilities;
            match input.read(dispatch, capabilities, &collecting.stop, &self.control)? {
                Reading::Threads(threads) => collecting.receivers.extend(threads),
                Reading::Watched(input) => {
                    if let Some(watch) = &collecting.watch {
                        watch.add(*input);
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates a worker: a collector with its recorders, sending into the pipeline, and the handle for queries.
    fn worker(
        &self,
        settings: &Settings,
        workers: usize,
        access: &Arc<Access>,
        triggers: Option<Triggers>,
    ) -> Result<(Worker, WorkerHandle), CliError> {
        let mut config = settings
            .collect()
            .collector_config(workers, self.generation)
            .map_err(CliError::new)?;
        config.access = Arc::clone(access);
        let recorder = (settings.store.enabled && settings.store.reports)
            .then(|| ReportRecorder::new(settings.collect().hop_profiles(), Arc::clone(access)));
        let hops = HopRecorder::new(&config, &self.hops.taps());
        let (worker, handle) = Worker::new(
            Collector::new(config),
            queue_sender(&self.pipeline)?.with_triggers(triggers),
            rule_names(settings, &self.intent_detection),
            recorder,
        );
        Ok((
            worker
                .with_aggregate_ports(settings.collect().aggregate_ports())
                .with_hops(hops),
            handle,
        ))
    }

    /// Returns a handle that stops or reloads the server from another thread.
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Processes messages until a request to stop; reloads the configuration on request.
    ///
    /// # Errors
    /// A thread failed.
    pub(crate) fn wait(&mut self) -> Result<(), CliError> {
        while let Ok(message) = self.messages.recv() {
            match message {
                Message::Stop => break,
                Message::Failed(reason) => return Err(CliError::new(reason)),
                Message::Detect(intent_detection) => self.detect(intent_detection),
                Message::Reload(requester) => {
                    notify::reloading();
                    let result = self.reload();
                    match &result {
                        Ok(unchanged) if unchanged.is_empty() => tracing::info!("configuration reloaded"),
                        Ok(unchanged) => tracing::warn!(
                            unchanged = unchanged.join(", "),
                            "configuration reloaded; restart to change the rest"
                        ),
                        Err(error) => tracing::error!(error, "configuration not reloaded; nothing changed"),
                    }
                    if let Some(requester) = requester {
                        // The requester may be gone.
                        let _ = requester.send(result);
                    }
                    notify::ready();
                }
            }
        }
        Ok(())
    }

    /// Reads the configuration again and applies what can change at run time. Returns the settings that need a restart.
    fn reload(&mut self) -> Reloaded {
        let Some(file) = &self.file else {
            return Err(
                "there is no configuration file; start with `hopwise run -c FILE` to have one".to_owned(),
            );
        };
        let new = self
            .overrides
            .apply(Settings::load(Some(file)).map_err(|error| error.to_string())?)?;
        let secrets = self.read_secrets()?;
        let tls = new.api.server().map_err(|problem| problem.message)?;
        let active = self.active_config.get();
        let (mut merged, mut unchanged) = active.reload(new);
        if let (Some(role), Some(old), Some(new)) = (&self.switch, &active.switch, &mut merged.switch) {
            if switch::same_ports(&old.ports, &new.ports).is_err() {
                new.ports.clone_from(&old.ports);
                unchanged.push("switch.ports".to_owned());
            }
            role.reload(new.clone())?;
        }
        let detection = merged
            .collect()
            .detection(&self.intent_detection, self.generation.wrapping_add(1))?;
        secrets.into_iter().for_each(NewSecret::activate);
        self.tls.replace(tls);
        self.activate(&detection, &rule_names(&merged, &self.intent_detection));
        self.pipeline
            .set_retention(merged.store.max_age, merged.store.max_bytes.map(|size| size.0));
        self.log.set_level(merged.log.level);
        self.collect_config.replace(merged.collect());
        self.active_config.replace(merged);
        let settings = self.active_config.get();
        self.hub.retain(|token| api::is_token_valid(&settings.api, token));
        if let (Some(manager), Some(configuration)) = (&self.manager, self.active_config.get().managed()) {
            manager.reload(configuration);
        }
        Ok(unchanged)
    }

    /// Activates the rules and thresholds of intents. The manager has checked that they fit beside the configured ones.
    fn detect(&mut self, intent_detection: Arc<IntentDetection>) {
        let settings = self.active_config.get();
        match settings
            .collect()
            .detection(&intent_detection, self.generation.wrapping_add(1))
        {
            Ok(detection) => {
                self.activate(&detection, &rule_names(&settings, &intent_detection));
                self.intent_detection = intent_detection;
            }
            Err(error) => tracing::error!(error, "the rules and thresholds of intents are not evaluated"),
        }
    }

    /// Activates thresholds and rules in all workers, and waits until each has applied them.
    fn activate(&mut self, detection: &Arc<Detection>, rules: &RuleNames) {
        self.generation = detection.generation;
        let workers = self.collecting.iter().flat_map(|collecting| &collecting.handles);
        let pending: Vec<_> = workers
            .map(|worker| worker.set_detection(Arc::clone(detection), Arc::clone(rules)))
            .collect();
        for reply in pending {
            // A worker that does not answer has ended, which stops the server.
            let _ = reply.recv_timeout(RELOAD_TIMEOUT);
        }
    }

    /// Reads the secrets of the exchange from their files again.
    fn read_secrets(&self) -> Result<Vec<NewSecret>, String> {
        let memory = self.memory.iter().filter_map(memory::Role::secret);
        let translator = self.translator.iter().flat_map(translator::Role::secrets);
        memory
            .chain(translator)
            .map(|file| file.reread().map_err(|error| error.to_string()))
            .collect()
    }

    /// Stops everything in reverse order: API, roles, inputs, then the store, which writes all queued records.
    pub(crate) fn stop(&mut self) {
        notify::stopping();
        if let Some(mut api) = self.api.take() {
            api.stop();
        }
        // Writes removed state files again while the roles that own them still exist.
        save::restore();
        drop(self.manager.take());
        drop(self.switch.take());
        drop(self.aggregator.take());
        drop(self.reporter.take());
        drop(self.translator.take());
        if let Some(memory) = self.memory.take() {
            let handle = memory.handle();
            drop(memory);
            self.lost_state |= handle.is_lost();
        }
        if let Some(collecting) = self.collecting.take() {
            collecting.stop();
        }
        self.pipeline.stop();
        // Last, so that exports also send the records that were stored at the end.
        drop(self.exports.take());
    }

    /// Returns whether state for the next start could not be saved when the server stopped; the log names it.
    pub(crate) fn has_lost_state(&self) -> bool {
        self.lost_state
    }

    /// Returns the final counters of the store; `None` without a store.
    pub(crate) fn store_stats(&self) -> Option<store::Stats> {
        self.pipeline.gauge().store()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Collecting {
    fn stop(self) {
        // Relaxed: the flag orders no other memory; joining the threads does.
        self.stop.store(true, Ordering::Relaxed);
        // A panic was reported when it happened; the other threads still deliver their data.
        for receiver in self.receivers {
            let _ = receiver.join();
        }
        drop(self.watch);
        for ledger in self.ledgers {
            ledger.finish(nic::time::now());
        }
        // The receivers are gone and their queues closed, so the workers end.
        for worker in self.workers {
            let _ = worker.join();
        }
        if let Some(worker) = self.inline {
            lock(&worker).finish(nic::time::now());
        }
        if let Some(recorder) = self.flight_recorder {
            let _ = recorder.join();
        }
    }
}

fn byte_count(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// Opens the comments and silences of alerts; `None` if events are not stored.
fn notes(settings: &Settings) -> Result<Option<Arc<Notes>>, CliError> {
    let stores = settings.store.enabled && settings.collects();
    Ok(stores
        .then(|| Notes::open(&settings.store_directory()))
        .transpose()?
        .map(Arc::new))
}

fn known_links(settings: &Settings) -> KnownLinks {
    let stores = settings.store.enabled && settings.collects();
    KnownLinks::open(stores.then(|| settings.store_directory().join(known_links::FILE)))
}

/// Opens the source of past data: ClickHouse for a console, the store for a collector; `None` without either.
fn history(
    settings: &Settings,
    moved: Option<store::MovedFiles>,
) -> Result<Option<Box<dyn History>>, CliError> {
    if let Some(console) = &settings.console {
        let destination = console
            .destination()
            .map_err(|(key, message)| console_error(key, &message))?;
        let tables = console
            .tables()
            .map_err(|(key, message)| console_error(key, &message))?;
        let limit = settings.api.query_timeout;
        return Ok(Some(Box::new(Remote::new(
            destination,
            tables,
            console.pair_names(),
            limit,
        ))));
    }
    if !settings.store.enabled || !settings.collects() {
        return Ok(None);
    }
    let reader = store::Reader::open(settings.store_directory());
    let reader = reader.map_err(|error| CliError::new(error.to_string()))?;
    Ok(Some(Box::new(Local::new(reader, moved))))
}

fn console_error(key: &str, message: &str) -> CliError {
    CliError::new(format!("[console] {key}: {message}"))
}

/// Creates the channel from switch to translator for DTA reports that a translator in this process intercepts; `None` if it
/// does not.
fn intercept(settings: &Settings) -> Result<Option<(SwitchEnd, TranslatorEnd)>, CliError> {
    let destinations = settings
        .translator
        .as_ref()
        .map(TranslatorSettings::intercepted)
        .unwrap_or_default();
    let destinations: Vec<SocketAddr> = destinations.into_iter().map(|(to, _)| to).collect();
    (!destinations.is_empty())
        .then(|| intercept::pair(destinations))
        .transpose()
}

fn queue_sender(pipeline: &Pipeline) -> Result<pipeline::QueueSender, CliError> {
    pipeline
        .outlet()
        .ok_or_else(|| CliError::new("the server was stopped; make a new one"))
}

/// Creates the flight recorder and one tap per worker; `None` if it is not configured.
fn flight_recorder(settings: &Settings, workers: usize) -> Option<(FlightRecorder, Vec<Tap>)> {
    build::flight_recorder(settings).map(|config| FlightRecorder::new(config, workers))
}

/// Returns the names of all rules, the configured ones first. A rule's index in this list is its number in events.
fn rule_names(settings: &Settings, intent_detection: &IntentDetection) -> RuleNames {
    let intent_rules = intent_detection.rules.iter().map(|rule| rule.name.clone());
    settings
        .rules
        .iter()
        .map(|rule| rule.name.clone())
        .chain(intent_rules)
        .collect()
}
