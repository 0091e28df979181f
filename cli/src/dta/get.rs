//! `hopwise get`: reads the data of a key from a Key-Write store, or its path from a Postcarding store, of collector memory.

use std::process::ExitCode;

use dta::Policy;

use super::{Source, fields_text, print, url_query};
use dta::key::Key;
use dta::source::{Answer, KeyQuery};
use net::client::escape;
use terminal::CliError;
use view::Names;

/// Get the data or path of a key from a store of collector memory
///
/// KEY is a flow, an address, a number or bytes. Exit code 1 when the store has no answer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  hopwise get paths '10.0.0.1:1234 > 10.0.0.2:80 tcp'
  hopwise get paths '10.0.0.1:1234>10.0.0.2:80/6' --policy strict --json
  hopwise get hosts 10.0.0.1                 the key is the address, 4 bytes
  hopwise get hosts 10.0.0.1,u16:80          an address and a port
  hopwise get 1 0x0a000001 --directory /dev/shm/hopwise   store 1, by mapping the regions
  hopwise get postcards 10.0.0.1 --largest 4095  of postcards of the artifact: only a path of node ids up to 4095
  hopwise get paths 10.0.0.1 --map map.json  query the collector of this key")]
pub struct Args {
    /// Name of the store, or its ID
    store: String,

    /// The key to look up
    key: Key,

    /// Policy when copies differ: first, majority or strict; default: as configured in the collector
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,

    /// Number of copies to read, 1 to 4. The default, 4, finds a key whatever number of copies reports write
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: Option<u8>,

    /// Largest value that a node reports in postcards, such as the greatest node id. A slot in the artifact's layout does not identify its key;
    /// paths of other keys look like random numbers
    #[arg(long, value_name = "VALUE")]
    largest: Option<u32>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Source,
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::from_name(text).ok_or_else(|| "write first, majority or strict".to_owned())
}

/// Runs `hopwise get`, and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let answer = match args.source.source()? {
        Some(source) => {
            let policy = args.policy.unwrap_or_default();
            let copies = args.copies.unwrap_or(4);
            let query = KeyQuery {
                policy,
                copies,
                largest: args.largest,
            };
            let store = source.find(&args.store).map_err(CliError::new)?;
            store.get(&args.key, query).map_err(CliError::new)?
        }
        None => query_answer(&args)?,
    };
    print(&answer, args.json, |answer| {
        text(answer, args.copies, &args.source.names())
    })?;
    Ok(if matches!(answer.answer.as_str(), "found" | "unproven") {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Asks the collectors of the key in turn, by the map; the first answer that is not empty counts.
fn query_answer(args: &Args) -> Result<Answer, CliError> {
    let map = args.source.map()?;
    let collectors = map
        .as_ref()
        .map(|map| map.collectors_of_key(&args.key))
        .unwrap_or_default();
    let params = url_query(&[
        ("key", Some(args.key.to_string())),
        ("policy", args.policy.map(|policy| policy.name().to_owned())),
        ("copies", args.copies.map(|copies| copies.to_string())),
        ("largest", args.largest.map(|largest| largest.to_string())),
    ]);
    let path = format!("/dta/stores/{}/get{params}", escape(&args.store));
    args.source.query_collectors(
        &collectors,
        &path,
        |answer: &Answer| answer.answer != "empty",
        |answer, name| answer.collector = Some(name.to_owned()),
    )
}

fn text(answer: &Answer, copies: Option<u8>, names: &Names) -> String {
    let value = match (&answer.fields, &answer.path, &answer.data) {
        (Some(fields), ..) => fields_text(fields, names),
        (None, Some(path), _) => {
            let hops = path.iter().enumerate().map(|(index, hop)| match hop {
                Some(value) => format!("hop {}: {value}", index + 1),
                None => format!("hop {}: ?", index + 1),
            });
            hops.collect::<Vec<_>>().join(", ")
        }
        (None, None, Some(data)) => format!("0x{data}"),
        (None, None, None) => {
            let reason = match answer.answer.as_str() {
                "ambiguous" => "the copies differ; --policy first uses the first copy of the key",
                "torn" => "the slot is being written; try again",
                _ => "never reported, or overwritten since",
            };
            let unread = copies.filter(|copies| *copies < 4 && answer.answer == "empty");
            let unread = unread.map(|copies| format!(" (read {copies} of up to 4 copies)"));
            format!("{}: {reason}{}", answer.answer, unread.unwrap_or_default())
        }
    };
    let copies = match (answer.agreeing, answer.copies) {
        (Some(agreeing), Some(copies)) if answer.answer == "found" => {
            format!("  ({agreeing} of {copies} copies)")
        }
        _ if answer.answer == "unproven" => {
            "  (unproven: slots in the artifact's layout do not identify their key; set the largest possible value with --largest)".to_owned()
        }
        _ => String::new(),
    };
    let collector = answer
        .collector
        .as_ref()
        .map(|name| format!("  [{name}]"))
        .unwrap_or_default();
    format!("{value}{copies}{collector}\n")
}
