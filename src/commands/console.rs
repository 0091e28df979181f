//! `hopwise console`: serves API and web UI from the ClickHouse that many collectors export to; no inputs, no store.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use api::pages;

use crate::{commands::run::api_address, lifecycle::Server, log::Log};
use config::{ConsoleOverrides, Overrides, Settings};
use terminal::CliError;

const EXAMPLES: &str = "\
Examples:
  hopwise console --url http://127.0.0.1:8123    the database hopwise of a ClickHouse on this machine; web UI on http://127.0.0.1:8080
  hopwise console -c console.toml                TLS, tokens, pairs of collectors: docs/how-to/fleet.md
  hopwise run -c console.toml                    the same, as a service does it
  curl 'http://127.0.0.1:8080/api/v1/events?kind=path_change'
SIGHUP reloads the configuration, SIGTERM stops.";

/// Serve the API and the web UI over what many collectors exported to ClickHouse
///
/// A console has no inputs and no store. It answers what a collector answers from its store: events, alerts, rollups, flows, nodes, links, queues and
/// losses of a time, the latencies and paths of a flow over time, and SQL, which is ClickHouse's here and can only read. What only a running
/// collector knows is not there.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file with a table `[console]` (default: the options below)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address of ClickHouse instead of the configured one
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Database of the tables instead of the configured one
    #[arg(long, value_name = "NAME")]
    database: Option<String>,

    /// User of ClickHouse instead of the configured one
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// File with the user's password in its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// PEM file with the certificate authorities to trust for an https:// address
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Serve the API on this address instead
    #[arg(long, value_name = "ADDRESS", value_parser = api_address)]
    api: Option<SocketAddr>,
}

/// Starts the server and runs it until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let Args {
        config,
        url,
        database,
        user,
        password_file,
        ca,
        api,
    } = args;
    let console = Some(ConsoleOverrides {
        url,
        database,
        user,
        password_file,
        ca,
    });
    let overrides = Overrides {
        api,
        console,
        ..Overrides::default()
    };
    let settings = overrides
        .apply(Settings::load(config.as_deref())?)
        .map_err(CliError::new)?;
    let log = Log::start(settings.log.level, settings.log.format);
    let mut server = Server::new(settings.clone(), config, log).with_overrides(overrides);
    let addresses = server.start()?;
    if let Some(console) = &settings.console {
        tracing::info!(
            clickhouse = console.url,
            database = console.database,
            "the console is running"
        );
    }
    let ui = settings.has_pages() && pages::are_built_in();
    tracing::info!(ui, url = %format_args!("{}://{}/", settings.api.scheme(), addresses.api), "the API is ready");
    let result = server.wait();
    server.stop();
    tracing::info!("stopped");
    result.map(|()| ExitCode::SUCCESS)
}
