//! State shared by all handlers: configuration, handles of the running roles, and permits that bound concurrent work.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::Semaphore;

use collect_role::{known_links::KnownLinks, live::Hub, monitor::Monitor};
use config::Settings;
use history::{History, alerts::Notes};
use net::{dns::Resolver, tls};
use runtime::{control::Control, current::Current};

/// Maximum number of concurrent reads of past data for the web pages: separate permits, so heavy SQL cannot block them.
pub const MAX_READS: usize = 4;
/// Memory budget for responses that clients have not received yet, KiB: 256 MiB.
pub const UNSENT_BUDGET_KIB: usize = 256 << 10;
/// Maximum size of a request body, bytes; ample for SQL queries.
pub(crate) const MAX_BODY: usize = 256 << 10;

/// State and role handles for the API's handlers.
#[derive(Debug)]
pub struct Context {
    /// Active settings; a reload replaces them.
    pub active_config: Arc<Current<Settings>>,
    /// Access to the workers' flow and node state.
    pub monitor: Arc<Monitor>,
    /// Source of events for live streams.
    pub hub: Arc<Hub>,
    /// Control of the main thread: reload and stop.
    pub control: Control,
    /// Switch role, if it runs.
    pub switch: Option<switch_role::role::Handle>,
    /// Aggregator role, if it runs.
    pub aggregator: Option<aggregate_role::role::Handle>,
    /// DTA reporter for programs on this machine, if it runs.
    pub reporter: Option<dta_role::reporter::Handle>,
    /// DTA translator, if it runs.
    pub translator: Option<dta_role::translator::Handle>,
    /// Collector memory, if there is any.
    pub memory: Option<dta_role::memory::Handle>,
    /// Manager role, if it runs.
    pub manager: Option<manage_role::role::Handle>,
    /// Exports, if any are configured.
    pub exports: Option<::export_role::role::Handle>,
    /// Resolver of host names by reverse DNS, if enabled.
    pub dns: Option<Arc<Resolver>>,
    /// TLS configuration and counters of the API.
    pub tls: Arc<tls::Endpoint>,
    /// Source of past data (store or ClickHouse), if there is one.
    pub history: Option<Box<dyn History>>,
    /// Comments and silences of alerts, if events are stored.
    pub notes: Option<Arc<Notes>>,
    /// True if an export notifies people, so that alerts are repeated when a silence ends.
    pub repeats_alerts: bool,
    /// Links that were observed: the nodes behind each interface.
    pub known_links: Arc<KnownLinks>,
    /// Path of the configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// Lock that serializes additions of rules to the configuration file.
    pub rule_file_lock: Arc<tokio::sync::Mutex<()>>,
    /// Permits for SQL queries.
    pub query_permits: Arc<Semaphore>,
    /// Permits for other queries of past data.
    pub read_permits: Arc<Semaphore>,
    /// Permits for large responses.
    pub page_permits: Arc<Semaphore>,
    /// Budget for responses that clients have not received yet, in KiB.
    pub unsent_budget: Arc<Semaphore>,
}
