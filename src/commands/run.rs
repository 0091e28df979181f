//! `hopwise run`

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use crate::{
    api::pages,
    config::{Overrides, Settings, values::Listen},
    error::CliError,
    lifecycle::Server,
    log::Log,
};

/// Receive reports, keep what matters, serve the API and the pages
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Configuration file; without it the defaults hold
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Listen here instead of where the configuration says, for example udp://*:32766; may be repeated
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<Listen>,

    /// Serve the API here instead
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) api: Option<SocketAddr>,

    /// Keep the store here instead
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let overrides = Overrides { listen: args.listen, api: args.api, store: args.store };
    let settings = overrides.apply(Settings::load(args.config.as_deref())?).map_err(CliError::new)?;
    let log = Log::start(settings.log.level);
    let mut server = Server::new(settings.clone(), args.config, log).with_overrides(overrides);
    let addresses = server.start()?;
    for input in &addresses.inputs {
        tracing::info!("listening for reports on udp://{input}");
    }
    if settings.store.enabled {
        tracing::info!("storing in {}", settings.store_directory().display());
    }
    let what =
        if settings.ui.enabled && pages::are_built_in() { "the pages are at" } else { "the API is at" };
    tracing::info!("{what} http://{}/", addresses.api);
    let ended = server.wait();
    server.stop();
    if let Some(stored) = server.stored() {
        let lost = stored.shed + stored.failed;
        tracing::info!(stored = stored.committed, lost, "stopped");
    }
    ended.map(|()| ExitCode::SUCCESS)
}
