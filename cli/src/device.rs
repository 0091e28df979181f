//! `hopwise device`: shows the manager's devices (state, ports, rules, counters) through its API, and imports an inventory
//! from CSV or NetBox.

mod cabling;
mod csv;
mod inventory;
mod netbox;

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use self::inventory::Import;
use super::{
    intent::pretty,
    remote::{Api, fetch},
};
use manage_role::role::view::{DeviceView, DevicesView, DomainView, EntriesView};
use manager::driver::Counter;
use net::client::escape;
use serde_json::Value;
use terminal::{Align, CliError, Table, units};

/// Maximum size of a CSV file, bytes.
const MAX_CSV: u64 = 64 << 20;
/// Maximum number of rules that `show` prints.
const MAX_RULES: usize = 30;

/// Show the devices of a manager: state, ports, rules
///
/// Talks to a running hopwise with [manager]; `import` reads a CSV file or NetBox.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise device list            every device and whether it is in sync
  hopwise device show leaf1      its ports, and their INT roles
  hopwise device read leaf1      its rules, as the manager last read them from it
  hopwise device forget leaf1    a device that is permanently off and was removed from the configuration
  hopwise device import dc1.csv --output dc1.toml
  hopwise device import --netbox https://netbox.example.org --ca ca.pem --filter role=leaf --filter role=spine")]
pub struct Args {
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
    /// List devices with their state and the share of entries in use
    List,
    /// Show one device and its ports
    Show {
        /// Name or node id of the device
        name: String,
    },
    /// Show the rules of one device
    Read {
        /// Name or node id of the device
        name: String,
    },
    /// Stop driving a device that is no longer in the configuration
    ///
    /// A device that is removed from the configuration is driven until its INT entries are gone. One that is permanently off never gets there.
    Forget {
        /// Name or node id of the device
        name: String,
    },
    /// Convert a CSV file, or the devices of a NetBox, into [[inventory.devices]], [[inventory.links]] and [[inventory.hosts]]
    ///
    /// The first row of the file names the columns: kind (device, link or host; default device), name, node, driver, address,
    /// labels, ports, edge (of devices), a, b, mtu (of links: the ends as DEVICE:PORT), name, addresses, at (of hosts). Lists are
    /// separated by spaces or semicolons.
    ///
    /// Devices of NetBox that match --filter become devices, and their physical interfaces ports. The far end of a cable
    /// becomes a link, or hosts with their addresses.
    Import {
        /// The CSV file (RFC 4180, UTF-8)
        #[arg(required_unless_present = "netbox", conflicts_with = "netbox")]
        file: Option<PathBuf>,
        #[command(flatten)]
        netbox: netbox::Options,
        /// File to write, which must not exist; default: standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Runs `hopwise device`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    if let Command::Import { file, netbox, output } = &args.command {
        let (import, notes) = match (&netbox.netbox, file) {
            (Some(url), _) => {
                let export = netbox::read(url, netbox, &args.api)?;
                cabling::import(&export, netbox)
                    .map_err(|problems| CliError::new(format!("NetBox at {}: {problems}", export.url)))?
            }
            (None, Some(file)) => (from_csv(file)?, Vec::new()),
            (None, None) => return Err(CliError::new("name a CSV file, or NetBox by --netbox")),
        };
        return write(&import, &notes, output.as_deref());
    }
    let client = args.api.client()?;
    if let Command::Forget { name } = &args.command {
        let answer = client.send("DELETE", &format!("/devices/{}", escape(name)), &Value::Null)?;
        let out = if args.json {
            pretty(&answer)
        } else {
            format!("{name} is no longer driven\n")
        };
        terminal::print(&out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = match &args.command {
        Command::List | Command::Import { .. } => "/devices".to_owned(),
        Command::Show { name } | Command::Read { name } | Command::Forget { name } => {
            format!("/devices/{}", escape(name))
        }
    };
    let out = match &args.command {
        _ if args.json => pretty(&client.get(&path)?),
        Command::List | Command::Import { .. } => {
            let devices = list(&fetch::<DevicesView>(&client, &path)?.devices);
            let copy = fetch::<DomainView>(&client, "/domain")?.copy;
            devices
                + &copy
                    .map(|copy| format!("This manager is on standby: {copy}.\n"))
                    .unwrap_or_default()
        }
        Command::Show { .. } | Command::Forget { .. } => show(&fetch(&client, &path)?),
        Command::Read { .. } => rules(&fetch(&client, &path)?),
    };
    terminal::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads an inventory from a CSV file.
fn from_csv(file: &Path) -> Result<Import, CliError> {
    let name = file.display().to_string();
    let mut text = String::new();
    let result = File::open(file).and_then(|file| file.take(MAX_CSV + 1).read_to_string(&mut text));
    result.map_err(|error| {
        CliError::io(
            format!("cannot read {name}"),
            error,
            "write the path of a CSV file in UTF-8",
        )
    })?;
    if text.len() as u64 > MAX_CSV {
        return Err(CliError::new(format!(
            "{name} is longer than {} MiB; split it",
            MAX_CSV >> 20
        )));
    }
    csv::read(&text, &name).map_err(CliError::new)
}

/// Writes an imported inventory as TOML, to a new file or standard output, and prints notes.
fn write(import: &Import, notes: &[String], output: Option<&Path>) -> Result<ExitCode, CliError> {
    match output {
        None => terminal::print(&import.toml())?,
        Some(path) => {
            let result = File::create_new(path).and_then(|mut out| out.write_all(import.toml().as_bytes()));
            let path = path.display();
            result.map_err(|error| {
                CliError::io(
                    format!("cannot write {path}"),
                    error,
                    "choose a file that does not exist",
                )
            })?;
        }
    }
    for note in notes {
        terminal::note(note);
    }
    terminal::note(format_args!(
        "{}; `hopwise check` reads the configuration they are added to",
        import.summary()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Formats the share of a table's entries in use, or `-` for a device outside the INT domain.
fn share_in_domain(device: &DeviceView, entries: EntriesView) -> String {
    match &device.does {
        Some(_) => "-".to_owned(),
        None => share(entries),
    }
}

fn list(devices: &[DeviceView]) -> String {
    use Align::{Left, Right};
    let columns = [
        ("DEVICE", Left),
        ("NODE", Right),
        ("STATE", Left),
        ("WATCHLIST", Right),
        ("FILTERS", Right),
        ("BY RULE", Right),
        ("", Left),
    ];
    let mut table = Table::new(columns);
    for device in devices {
        let task = device.does.iter().map(|task| format!("{}: {task}", device.role));
        let text = task.chain((device.text != device.state).then(|| device.text.clone()));
        table.row([
            device.name.clone(),
            device.node.to_string(),
            device.state.clone(),
            share_in_domain(device, device.watch_entries),
            share_in_domain(device, device.filter_entries),
            share_in_domain(device, device.rule_filters),
            text.collect::<Vec<_>>().join("; "),
        ]);
    }
    if table.is_empty() {
        "no devices; add [[inventory.devices]] to the configuration\n".to_owned()
    } else {
        table.render()
    }
}

/// Formats the entries in use and the size of a table.
fn share(EntriesView { used, others, size }: EntriesView) -> String {
    let total = used + others;
    let full = if total >= size && size > 0 { "full: " } else { "" };
    let others_note = if others > 0 {
        format!(" ({others} of other controllers)")
    } else {
        String::new()
    };
    format!("{full}{total}/{size}{others_note}")
}

fn show(device: &DeviceView) -> String {
    use Align::{Left, Right};
    let mut out = format!("{}  node {}  {}\n", device.name, device.node, device.text);
    out.push_str(&format!("  {} at {}\n", device.driver, device.address));
    if let Some(task) = &device.does {
        out.push_str(&format!("  {}: {task}\n", device.role));
    }
    if device.missing + device.extra > 0 {
        let missing = units::counted(device.missing as u64, "rule");
        out.push_str(&format!("  {missing} missing, {} unexpected\n", device.extra));
    }
    let columns = [
        ("PORT", Right),
        ("INTERFACE", Left),
        ("ROLE", Left),
        ("PEER", Left),
        ("MTU", Right),
        ("INT", Left),
    ];
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
    if !table.is_empty() {
        out.push('\n');
        out.push_str(&table.indented(2).render());
    }
    out.push_str(&counters(&device.counters));
    let rules = device.rules.as_deref().unwrap_or_default();
    if !rules.is_empty() {
        out.push_str("\n  RULES\n");
        rules
            .iter()
            .take(MAX_RULES)
            .for_each(|rule| out.push_str(&format!("  {rule}\n")));
    }
    if rules.len() > MAX_RULES {
        let name = &device.name;
        out.push_str(&format!(
            "  and {} more: hopwise device read {name}\n",
            rules.len() - MAX_RULES
        ));
    }
    for port in &device.ports {
        if let Some(note) = port
            .neighbour
            .as_ref()
            .and_then(|neighbour| neighbour.note.as_ref())
        {
            out.push_str(&format!("\n  port {}: {note}\n", port.port));
        }
    }
    out
}

/// Renders a table of all nonzero counters.
fn counters(counters: &[Counter]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([("COUNTER", Left), ("PACKETS", Right), ("", Left)]);
    let mut last = None;
    for counter in counters.iter().filter(|counter| counter.packets > 0) {
        let object = counter.object.iter().map(|object| format!("{object}: "));
        // The description appears only in the first row of each object.
        let about = counter.about.clone().filter(|_| last != Some(&counter.object));
        last = Some(&counter.object);
        table.row([
            object.chain([counter.name.clone()]).collect(),
            counter.packets.to_string(),
            about.unwrap_or_default(),
        ]);
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("\n{}", table.indented(2).render())
    }
}

fn rules(device: &DeviceView) -> String {
    match &device.rules {
        None => format!(
            "the rules of {} have never been read: {}\n",
            device.name, device.text
        ),
        Some(rules) if rules.is_empty() => format!("{} has no rules\n", device.name),
        Some(rules) => rules.iter().map(|rule| format!("{rule}\n")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(object: Option<&str>, about: Option<&str>, name: &str, packets: u64) -> Counter {
        Counter {
            object: object.map(str::to_owned),
            about: about.map(str::to_owned),
            name: name.to_owned(),
            packets,
        }
    }

    #[test]
    fn counters_of_filters_say_what_the_filter_does() {
        let rule = Some("report if hops > 3: to 10.0.0.0/16");
        let rules = [
            counter(None, None, "inserted", 12),
            counter(Some("filter 7"), rule, "ended", 0),
            counter(Some("filter 7"), rule, "event", 3),
            counter(Some("filter 7"), rule, "suppressed", 5),
        ];
        let expected = "
  COUNTER               PACKETS
  inserted                   12
  filter 7: event             3  report if hops > 3: to 10.0.0.0/16
  filter 7: suppressed        5
";
        assert_eq!(counters(&rules), expected);
        assert_eq!(counters(&[]), "");
    }

    #[test]
    fn entries_of_others_take_room_in_a_table() {
        let cases = [
            ((2, 0, 1023), "2/1023"),
            ((2, 5, 1023), "7/1023 (5 of other controllers)"),
            ((2, 2, 4), "full: 4/4 (2 of other controllers)"),
            ((0, 0, 0), "0/0"),
        ];
        for ((used, others, size), expected) in cases {
            assert_eq!(share(EntriesView { used, others, size }), expected);
        }
    }
}
