//! `hopwise outlet`: runs a server that consumes the records of collectors from Kafka and inserts them into ClickHouse.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use crate::{commands::run::api_address, lifecycle::Server, log::Log};
use config::{Overrides, Settings};
use terminal::CliError;

/// Insert what collectors send to Kafka into ClickHouse
///
/// An outlet reads the topics of exports with kind = "kafka", and inserts their records into the tables that a console reads. Each record
/// is read at least once; a repeat of the same batch is recognised by ClickHouse. Messages that cannot be inserted are written to files, with
/// topic, partition, offset and reason, and counted. It saves how far it has come in a directory of its own, and does not commit offsets to
/// a consumer group: several outlets share the partitions by `share` of the section outlet.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file with a table `[outlet]`
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Serve the API, with metrics, on this address instead
    #[arg(long, value_name = "ADDRESS", value_parser = api_address)]
    api: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  hopwise schema apply -c outlet.toml outlet    make the tables; the topics are made by a collector's export
  hopwise check -c outlet.toml --connect        check that both are reachable and have what is needed
  hopwise outlet -c outlet.toml                 until SIGTERM; what is in flight is completed first, for at most 10 s
  hopwise run -c outlet.toml                    the same, as a service does it
  hopwise export status                         of each partition: inserted, waiting, rejected, the last error

A configuration:
  [outlet]
  state = \"/var/lib/hopwise/outlet\"
  [outlet.kafka]
  url = \"tcp://127.0.0.1:9092\"
  [outlet.clickhouse]
  url = \"http://127.0.0.1:8123\"
All keys: docs/reference/config.md. Steps: docs/how-to/outlet.md.";

/// Starts the server and runs it until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let overrides = Overrides {
        api: args.api,
        ..Overrides::default()
    };
    let settings = overrides
        .apply(Settings::load(Some(&args.config))?)
        .map_err(CliError::new)?;
    let Some(outlet) = settings.outlet.clone() else {
        return Err(CliError::new(format!(
            "there is no [outlet] in {}; `hopwise outlet --help` shows one",
            args.config.display()
        )));
    };
    let log = Log::start(settings.log.level, settings.log.format);
    let mut server = Server::new(settings.clone(), Some(args.config), log).with_overrides(overrides);
    let addresses = server.start()?;
    let kafka = outlet.kafka.url;
    let clickhouse = outlet.clickhouse.url;
    tracing::info!(kafka, clickhouse, "the outlet is running");
    tracing::info!(url = %format_args!("{}://{}/", settings.api.scheme(), addresses.api), "the API is ready");
    let result = server.wait();
    server.stop();
    tracing::info!("stopped");
    result.map(|()| ExitCode::SUCCESS)
}
