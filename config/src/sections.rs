//! The tables of the configuration file. The doc comments are the manual: `docs/reference/config.md` is made from them.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use rustls::ServerConfig;

use collect_role::settings::Policy;
use net::tls;
use settings::{
    choice, section,
    values::{Secret, Size},
};
use store::Period;

section! {
    /// Names of hosts that are not in `[[inventory.hosts]]`.
    pub struct NamesSettings("[names]") {
        /// Look up hosts by DNS (PTR), in the background, as the system does: its files come first. Only addresses that a page or a
        /// command asks for, at most 20 a second; a name is cached for 1 h, and a negative answer for 10 min. The name servers see
        /// these addresses.
        pub dns: bool = false,
    }
}

section! {
    /// Storage in SQLite files, one per period: any SQLite tool opens them, and retention deletes whole files.
    pub struct StoreSettings("[store]") {
        /// Store events, rollups, flows, drops and losses on disk. Without it, the live view still works.
        pub enabled: bool = true,
        /// Directory, created if missing. Default: $STATE_DIRECTORY (systemd), otherwise `hopwise-data` in the current
        /// directory.
        pub dir: Option<PathBuf> = None,
        /// Period of one file.
        pub period: Period = Period::Day,
        /// Interval between commits. A crash loses at most this.
        pub commit_every: Duration = Duration::from_secs(1),
        /// Records queued for the disk, bytes, shared as in `result_queue`.
        pub queue: Size = Size(64 << 20),
        /// When the disk is too slow: `shed` drops records and counts them; `block` makes the workers wait, and the kernel
        /// then drops and counts what does not fit into the socket buffers.
        pub policy: Policy = Policy::Shed,
        /// Delete files that were last written longer ago than this. Not set: never. For an hour after the clock was set, no file
        /// is deleted for its age.
        [live] pub max_age: Option<Duration> = Some(Duration::from_secs(30 * 86_400)),
        /// Delete the oldest files when the total size exceeds this. Not set: unlimited.
        [live] pub max_bytes: Option<Size> = Some(Size(100 << 30)),
        /// Store every decoded report, one row per hop. This takes a lot of space.
        pub reports: bool = false,
    }
}

section! {
    /// The HTTP API and the web UI.
    pub struct ApiSettings("[api]") {
        /// Address to listen on. Any other than a loopback address needs a `token`.
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// Bearer token that clients must send: `Authorization: Bearer TOKEN`, or `?token=TOKEN`. Generate one with `openssl
        /// rand -hex 24`. Its role is `operate`. For access over a network, set `tls`.
        [live] pub token: Option<Secret> = None,
        /// Further tokens, each with a role and a name.
        [live] pub tokens: Vec<TokenSettings> = Vec::new(),
        /// Serve it over TLS.
        [live] pub tls: Option<TlsSettings> = None,
        /// Additional host names accepted on a loopback address (behind a tunnel or a proxy). Requests with any other `Host`
        /// are refused, as a defence against DNS rebinding.
        [live] pub hosts: Vec<String> = Vec::new(),
        /// Concurrent clients of the live stream.
        pub max_streams: usize = 64,
        /// Events queued per client of the live stream; a slower client loses events and receives the number of lost ones.
        pub stream_queue: usize = 1024,
        /// Concurrent SQL queries; further ones are refused.
        pub max_queries: usize = 2,
        /// Timeout of a SQL query; in a console, of every answer.
        pub query_timeout: Duration = Duration::from_secs(10),
        /// Maximum rows in the result of a SQL query.
        pub query_rows: usize = 10_000,
    }
}

section! {
    /// TLS of the API. A reload reads the files again; existing connections stay open.
    pub struct TlsSettings("[api.tls]") {
        /// PEM file with the certificate, followed by the intermediate certificates.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// PEM file with certificate authorities: only clients with a certificate from one of them are served. Not set: all
        /// clients.
        pub client_ca: Option<PathBuf> = None,
    }
}

impl TlsSettings {
    /// Returns the TLS configuration of a server with this certificate.
    ///
    /// # Errors
    /// A file is missing or cannot be used.
    pub fn server(&self) -> Result<Arc<ServerConfig>, tls::Problem> {
        let identity = tls::Identity::from_files(self.certificate.as_deref(), self.key.as_deref())?;
        let identity = identity.ok_or_else(|| tls::Problem {
            file: tls::Part::Certificate,
            message: "add certificate = \"server.pem\" and key = \"server.key\"".to_owned(),
        })?;
        tls::server(&identity, self.client_ca.as_deref())
    }

    /// Returns a warning if some clients will reject the certificate.
    pub fn warning(&self) -> Option<String> {
        let identity = tls::Identity::from_files(self.certificate.as_deref(), self.key.as_deref());
        identity.ok().flatten()?.authority_warning()
    }
}

impl ApiSettings {
    /// Returns the TLS configuration of the API, or `None` without `[api.tls]`.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn server(&self) -> Result<Option<Arc<ServerConfig>>, tls::Problem> {
        self.tls.as_ref().map(TlsSettings::server).transpose()
    }

    /// Returns the scheme of the URLs of the API: `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns true if requests need a token.
    pub fn needs_token(&self) -> bool {
        self.token.is_some() || !self.tokens.is_empty()
    }
}

section! {
    /// A token of one person or program.
    pub struct TokenSettings("[[api.tokens]]") {
        /// The token; see `[api] token`.
        pub token: Option<Secret> = None,
        /// Role of the token's bearer.
        pub role: Role = Role::Read,
        /// Name of the bearer, recorded in the manager's history with each action.
        pub name: String = String::new(),
    }
}

choice! {
    /// Rights of the bearer of a token.
    pub enum Role("\"read\" or \"operate\"") {
        /// Read everything, and change nothing.
        Read = "read",
        /// Read and change everything.
        Operate = "operate",
    }
}

section! {
    /// The web UI, which the API's listener serves.
    pub struct UiSettings("[ui]") {
        /// Serve the web UI.
        pub enabled: bool = true,
    }
}

section! {
    /// The log, on standard error.
    pub struct LogSettings("[log]") {
        /// The least severe level that is logged.
        [live] pub level: Level = Level::Info,
        /// Format of the lines: text, or one JSON object per line.
        pub format: LogFormat = LogFormat::Text,
    }
}

choice! {
    /// Form of the lines of the log.
    pub enum LogFormat("\"text\" or \"json\"") {
        /// For people; in colour on a terminal.
        Text = "text",
        /// A JSON object per line, for programs: `timestamp`, `level`, `message`, and the values that belong to it.
        Json = "json",
    }
}

choice! {
    /// Log level; each includes the levels before it.
    pub enum Level("\"error\", \"warn\", \"info\", \"debug\" or \"trace\"") {
        /// Failures that need attention.
        Error = "error",
        /// Conditions that may need attention.
        Warn = "warn",
        /// Starts, stops and reloads.
        Info = "info",
        /// Reasons for decisions, and details for debugging.
        Debug = "debug",
        /// Every step, in great volume.
        Trace = "trace",
    }
}
