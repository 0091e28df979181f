//! `hopwise run`: runs all configured roles (collector, switch, aggregator, reporter, translator, manager) until a signal.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use api::pages;

use cli::examine;

use crate::{lifecycle::Server, log::Log};
use config::{Overrides, Settings};
use settings::listen::Listen;
use terminal::CliError;

const EXAMPLES: &str = "\
Examples:
  hopwise run                                    UDP port 32766, web UI on http://127.0.0.1:8080, store in ./hopwise-data
  hopwise run -c hopwise.toml                    profiles, thresholds, rules, sizes: docs/reference/config.md
  hopwise run -l udp://*:32766 -l udp://*:54321  two ports
  hopwise run --api 127.0.0.1:9000 --store /tmp/try
SIGHUP reloads the configuration, SIGTERM stops after everything is on disk; exit code 1 if something could not be written.";

/// Receive reports, detect and store events, serve the API and the web UI
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file (default: built-in defaults)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Listen on this input instead of the configured ones, for example udp://*:32766; may be repeated
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<Listen>,

    /// Serve the API on this address instead
    #[arg(long, value_name = "ADDRESS", value_parser = api_address)]
    pub(crate) api: Option<SocketAddr>,

    /// Use this store directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

/// Parses the value of `--api`.
pub(crate) fn api_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
}

/// Starts the server and runs it until SIGTERM or SIGINT. Exit code 1 if it could not store or save everything.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let overrides = Overrides {
        listen: args.listen,
        api: args.api,
        store: args.store,
        console: None,
    };
    let settings = overrides
        .apply(Settings::load(args.config.as_deref())?)
        .map_err(CliError::new)?;
    let log = Log::start(settings.log.level, settings.log.format);
    if settings.collects() {
        examine::log_at_start(&settings);
    }
    let mut server = Server::new(settings.clone(), args.config, log)
        .with_overrides(overrides)
        .dropping_capabilities();
    let addresses = server.start()?;
    for input in &addresses.inputs {
        tracing::info!(address = %format_args!("udp://{input}"), "receiving reports");
    }
    if let Some(switch) = &settings.switch {
        tracing::info!(
            node = switch.node,
            ports = switch.ports.len(),
            "the switch is running"
        );
    }
    if let (Some(input), Some(aggregator)) = (addresses.aggregator, &settings.aggregator) {
        let to: Vec<_> = aggregator.forward.iter().map(ToString::to_string).collect();
        let kind = aggregator.kind.name();
        let to = to.join(" ");
        tracing::info!(address = %format_args!("udp://{input}"), kind, to, "the aggregator is receiving postcards");
    }
    if let Some(reporter) = &settings.reporter {
        tracing::info!(listen = %reporter.listen, id = reporter.id, "the DTA reporter is receiving reports of programs");
    }
    for dta in &addresses.dta {
        tracing::info!(address = %format_args!("udp://{dta}"), "the translator is receiving DTA reports");
    }
    if let Some((roce, exchange)) = addresses.memory {
        tracing::info!(
            roce = %format_args!("udp://{roce}"),
            exchange = %format_args!("tcp://{exchange}"),
            "the collector memory is ready"
        );
    }
    if settings.store.enabled && settings.collects() {
        tracing::info!(directory = %settings.store_directory().display(), "the store is open");
    }
    let ui = settings.has_pages() && pages::are_built_in();
    tracing::info!(ui, url = %format_args!("{}://{}/", settings.api.scheme(), addresses.api), "the API is ready");
    let result = server.wait();
    server.stop();
    let mut is_complete = !server.has_lost_state();
    if let Some(stats) = server.store_stats() {
        is_complete &= stats.failed + stats.removed == 0;
        if stats.removed > 0 {
            let files = stats.moved_files;
            tracing::error!(
                files,
                records = stats.removed,
                "files of the store were removed or replaced while hopwise ran"
            );
        }
        tracing::info!(stored = stats.stored(), lost = stats.lost(), "stopped");
    }
    result.map(|()| {
        if is_complete {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        }
    })
}
