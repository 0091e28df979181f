//! `hopwise device`: what the manager drives.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use super::{
    client::escape,
    intent::pretty,
    remote::{Api, fetch},
};
use crate::manager_role::view::{DeviceView, DevicesView, EntriesView};
use terminal::{Align, CliError, Table};

/// Show the devices of a manager: state, ports, rules
///
/// Talks to a running hopwise with [manager].
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise device list            every device and whether it has what it should have
  hopwise device show leaf1      its ports, and their INT roles
  hopwise device read leaf1      its rules, as the manager last read them from it")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// JSON instead of a table
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    api: Api,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List devices
    List,
    /// Show one device and its ports
    Show {
        /// Its name or node id
        name: String,
    },
    /// Show the rules of one device
    Read {
        /// Its name or node id
        name: String,
    },
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, CliError> {
    let client = args.api.client()?;
    let path = match &args.command {
        Command::List => "/devices".to_owned(),
        Command::Show { name } | Command::Read { name } => format!("/devices/{}", escape(name)),
    };
    let out = match &args.command {
        _ if args.json => pretty(&client.get(&path)?),
        Command::List => list(&fetch::<DevicesView>(&client, &path)?.devices),
        Command::Show { .. } => show(&fetch(&client, &path)?),
        Command::Read { .. } => rules(&fetch(&client, &path)?),
    };
    io::stdout().write_all(out.as_bytes()).map_err(CliError::output)?;
    Ok(ExitCode::SUCCESS)
}

fn list(devices: &[DeviceView]) -> String {
    use Align::{Left, Right};
    let columns = [
        ("DEVICE", Left),
        ("NODE", Right),
        ("STATE", Left),
        ("WATCHLIST", Right),
        ("FILTERS", Right),
        ("", Left),
    ];
    let mut table = Table::new(columns);
    for device in devices {
        let of = |entries: EntriesView| format!("{}/{}", entries.used, entries.size);
        table.row([
            device.name.clone(),
            device.node.to_string(),
            device.state.clone(),
            of(device.watch_entries),
            of(device.filter_entries),
            if device.text == device.state { String::new() } else { device.text.clone() },
        ]);
    }
    if table.is_empty() {
        "no devices; add [[inventory.devices]] to the configuration\n".to_owned()
    } else {
        table.render()
    }
}

fn show(device: &DeviceView) -> String {
    use Align::{Left, Right};
    let mut out = format!("{}  node {}  {}\n", device.name, device.node, device.text);
    out.push_str(&format!("  {} at {}\n", device.driver, device.address));
    if device.missing + device.extra > 0 {
        out.push_str(&format!("  lacks {} rules, has {} too many\n", device.missing, device.extra));
    }
    let columns =
        [("PORT", Right), ("INTERFACE", Left), ("ROLE", Left), ("PEER", Left), ("MTU", Right), ("INT", Left)];
    let mut table = Table::new(columns);
    for port in &device.ports {
        let int = match (port.source, port.sink) {
            (true, true) => "source and sink",
            (true, false) => "source",
            (false, true) => "sink",
            (false, false) => "-",
        };
        table.row([
            port.port.to_string(),
            port.name.clone().unwrap_or_else(|| "-".to_owned()),
            port.role.clone(),
            port.peer.clone().unwrap_or_else(|| "-".to_owned()),
            port.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            int.to_owned(),
        ]);
    }
    out.push('\n');
    out.push_str(&table.indented(2).render());
    out
}

fn rules(device: &DeviceView) -> String {
    match &device.rules {
        None => format!("the rules of {} were never read: {}\n", device.name, device.text),
        Some(rules) if rules.is_empty() => format!("{} has no rules\n", device.name),
        Some(rules) => rules.iter().map(|rule| format!("{rule}\n")).collect(),
    }
}
