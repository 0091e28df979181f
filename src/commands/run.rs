//! `hopwise run`

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use crate::{
    api::pages,
    config::{Overrides, Settings, values::Listen},
    doctor,
    lifecycle::Server,
    log::Log,
};
use terminal::CliError;

/// Receive reports, keep what matters, serve the API and the pages
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file; without it the defaults hold
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Listen here instead of where the configuration says, for example udp://*:32766; may be repeated
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<Listen>,

    /// Serve the API here instead
    #[arg(long, value_name = "ADDRESS", value_parser = api_address)]
    pub(crate) api: Option<SocketAddr>,

    /// Keep the store here instead
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hopwise run                                    udp port 32766, page on http://127.0.0.1:8080, store in ./hopwise-data
  hopwise run -c hopwise.toml                    profiles, thresholds, rules, sizes: docs/reference/config.md
  hopwise run -l udp://*:32766 -l udp://*:54321  two ports
  hopwise run --api 127.0.0.1:9000 --store /tmp/try
SIGHUP reads the configuration again, SIGTERM stops when everything is on disk; exit code 1 when something could not be written there.";

fn api_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let overrides = Overrides { listen: args.listen, api: args.api, store: args.store };
    let settings = overrides.apply(Settings::load(args.config.as_deref())?).map_err(CliError::new)?;
    let log = Log::start(settings.log.level);
    if settings.collects() {
        doctor::at_start(&settings);
    }
    let mut server =
        Server::new(settings.clone(), args.config, log).with_overrides(overrides).dropping_capabilities();
    let addresses = server.start()?;
    for input in &addresses.inputs {
        tracing::info!("listening for reports on udp://{input}");
    }
    if let Some(switch) = &settings.switch {
        tracing::info!("switching between {} ports as node {}", switch.ports.len(), switch.node);
    }
    if let (Some(input), Some(aggregator)) = (addresses.aggregator, &settings.aggregator) {
        let to: Vec<_> = aggregator.forward.iter().map(ToString::to_string).collect();
        tracing::info!(
            "taking postcards on udp://{input}, sending {} to {}",
            aggregator.kind.word(),
            to.join(" ")
        );
    }
    for dta in &addresses.dta {
        tracing::info!("taking DTA reports on udp://{dta}");
    }
    if let Some((roce, exchange)) = addresses.memory {
        tracing::info!("memory: RoCEv2 on udp://{roce}, exchange on tcp://{exchange}");
    }
    if settings.store.enabled && settings.collects() {
        tracing::info!("storing in {}", settings.store_directory().display());
    }
    let what = if settings.ui.enabled && settings.collects() && pages::are_built_in() {
        "the pages are at"
    } else {
        "the API is at"
    };
    tracing::info!("{what} http://{}/", addresses.api);
    let ended = server.wait();
    server.stop();
    let mut is_whole = !server.has_lost();
    if let Some(stored) = server.stored() {
        let lost = stored.shed + stored.failed;
        is_whole &= stored.failed == 0;
        tracing::info!(stored = stored.committed, lost, "stopped");
    }
    ended.map(|()| if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
