//! State that the handlers of all routes share.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::Semaphore;

use collect_role::{known_links::KnownLinks, live::Hub, monitor::Monitor};
use config::Settings;
use history::{History, alerts::Notes};
use net::{dns::Resolver, tls};
use runtime::{control::Control, current::Current};

/// The state and the handles of the roles that handlers use.
#[derive(Debug)]
pub struct Context {
    /// The settings in use; a reload replaces them.
    pub active_config: Arc<Current<Settings>>,
    /// Access to the workers' state.
    pub monitor: Arc<Monitor>,
    /// The hub from which live streams receive events.
    pub hub: Arc<Hub>,
    /// Control of the main thread.
    pub control: Control,
    /// The switch, if there is one.
    pub switch: Option<switch_role::role::Handle>,
    /// The aggregator, if there is one.
    pub aggregator: Option<aggregate_role::role::Handle>,
    /// The DTA reporter of this machine, if there is one.
    pub reporter: Option<dta_role::reporter::Handle>,
    /// The DTA translator, if there is one.
    pub translator: Option<dta_role::translator::Handle>,
    /// The collector's memory, if there is one.
    pub memory: Option<dta_role::memory::Handle>,
    /// The manager, if there is one.
    pub manager: Option<manage_role::role::Handle>,
    /// The exports, if there are any.
    pub exports: Option<::export_role::role::Handle>,
    /// Names of hosts by DNS, if they are wanted.
    pub dns: Option<Arc<Resolver>>,
    /// TLS of the API.
    pub tls: Arc<tls::Endpoint>,
    /// The source of answers about the past, if there is one.
    pub history: Option<Box<dyn History>>,
    /// Comments and silences of alerts, if they are stored.
    pub notes: Option<Arc<Notes>>,
    /// Whether alerts are reported once more when a silence ends: exports send them to people.
    pub reminds: bool,
    /// Nodes that were seen behind interfaces.
    pub known_links: Arc<KnownLinks>,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// One rule is added to it at a time.
    pub enabling: Arc<tokio::sync::Mutex<()>>,
    /// Permits for SQL queries.
    pub queries: Arc<Semaphore>,
    /// Permits for other queries about the past.
    pub reads: Arc<Semaphore>,
    /// Permits for large responses.
    pub pages: Arc<Semaphore>,
    /// Permits for memory of responses that clients have not received yet, KiB.
    pub unsent: Arc<Semaphore>,
}

/// Maximum number of concurrent store requests of the web pages, in addition to SQL queries: a heavy query must not block the pages.
pub const READS: usize = 4;

/// Memory of responses that clients have not received yet, KiB.
pub const UNSENT: usize = 256 << 10;

/// Longest body of a request, bytes: a SQL query with room to spare.
pub(crate) const MAX_BODY: usize = 256 << 10;
