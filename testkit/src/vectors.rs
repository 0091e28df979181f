//! Reads the test vectors in `vectors/*.txt`; `vectors/README.md` describes the format.

use std::path::Path;
use wire::profile::{Domain, TcpShim};
use wire::{Dialect, Profile};

/// Kind of packet that a vector holds, and the layer at which its bytes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An Ethernet frame whose UDP payload is a telemetry datagram.
    Frame,
    /// The payload of a telemetry datagram.
    Payload,
    /// An Ethernet frame of the data plane.
    Packet,
    /// INT from its L4 shim on.
    Shim,
    /// The payload of a datagram with an aggregate.
    Aggregate,
    /// An Ethernet frame whose UDP payload is an aggregate.
    AggregateFrame,
    /// The payload of a DTA report, version 1 or the artifact's.
    Dta,
    /// The payload of a DTA control message, version 1 or the artifact's.
    DtaControl,
    /// An Ethernet frame with RoCEv2.
    Roce,
    /// An Ethernet frame with LLDP.
    Lldp,
}

/// One test vector of the folder.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Name of the vector, unique in the folder.
    pub name: String,
    /// Kind of the bytes.
    pub kind: Kind,
    /// Decoder profile for the bytes.
    pub profile: Profile,
    /// Parsing and emitting must give the same bytes.
    pub write: bool,
    /// The bytes of the vector.
    pub bytes: Vec<u8>,
    /// One line per object: JSON, or `{"error":"…"}`.
    pub expect: Vec<String>,
}

/// Reads all vectors of the folder, sorted by file name.
pub fn all() -> Vec<Vector> {
    // The folder lies at the root of the repository, above this crate.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("vectors"));
    let folder = folders
        .into_iter()
        .find(|folder| folder.is_dir())
        .expect("vectors/ is there");
    let entries = std::fs::read_dir(&folder).expect("readable");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let vectors: Vec<_> = files
        .iter()
        .flat_map(|path| parse(&std::fs::read_to_string(path).expect("text")))
        .collect();
    assert!(
        // Guards against tests that pass because the folder is incomplete.
        vectors.len() > 50,
        "only {} vectors in {}",
        vectors.len(),
        folder.display()
    );
    vectors
}

/// Returns the bytes of the vector with this name, for examples in documentation.
///
/// # Panics
/// If there is no such vector.
pub fn bytes(name: &str) -> Vec<u8> {
    let vector = all().into_iter().find(|vector| vector.name == name);
    vector.unwrap_or_else(|| panic!("no vector {name}")).bytes
}

/// Parses a file: lines with `#` are comments, and empty lines separate vectors.
fn parse(text: &str) -> Vec<Vector> {
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    text.split(|line| line.is_empty())
        .filter(|block| !block.is_empty())
        .map(vector)
        .collect()
}

fn vector(block: &[&str]) -> Vector {
    let mut vector = Vector {
        name: String::new(),
        kind: Kind::Payload,
        profile: Profile::default(),
        write: true,
        bytes: Vec::new(),
        expect: Vec::new(),
    };
    for line in block {
        let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        let value = value.trim();
        match key {
            "name" => vector.name = value.to_owned(),
            "about" => {}
            "kind" => vector.kind = kind(value),
            "profile" => {
                let dialect = Dialect::from_name(value).unwrap_or_else(|| panic!("no dialect {value}"));
                vector.profile = Profile::new(dialect);
            }
            "set" => set(&mut vector.profile, value),
            "write" => vector.write = value != "no",
            "hex" => vector.bytes.extend(hex(value)),
            "expect" => vector.expect.push(value.to_owned()),
            "error" => vector.expect.push(format!("{{\"error\":\"{value}\"}}")),
            _ => panic!("{}: unknown key {key}", vector.name),
        }
    }
    vector
}

fn kind(name: &str) -> Kind {
    match name {
        "frame" => Kind::Frame,
        "payload" => Kind::Payload,
        "packet" => Kind::Packet,
        "shim" => Kind::Shim,
        "aggregate" => Kind::Aggregate,
        "aggregate_frame" => Kind::AggregateFrame,
        "dta" => Kind::Dta,
        "dta_control" => Kind::DtaControl,
        "roce" => Kind::Roce,
        "lldp" => Kind::Lldp,
        _ => panic!("unknown kind {name}"),
    }
}

fn set(profile: &mut Profile, setting: &str) {
    let words: Vec<&str> = setting.split(' ').collect();
    let number = |i: usize| u64::from_str_radix(words[i], 16).expect("a hexadecimal number");
    match words[0] {
        "vxlan_port" => profile.vxlan_ports[0] = number(1) as u16,
        "probe_marker" => profile.probe_marker = Some(number(1)),
        "dscp" => (profile.dscp, profile.dscp_mask) = (number(1) as u8, number(2) as u8),
        "tcp_shim" => profile.tcp_shim = TcpShim::AfterOptions,
        "drop_zero_unknown" => profile.drop_zero_unknown = true,
        "domain" => {
            profile.domains[0] = Some(Domain {
                id: number(1) as u16,
                source_only_words: number(2) as u8,
            });
        }
        _ => panic!("unknown setting {setting}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != ' ')
        .map(|c| c.to_digit(16).expect("hex") as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
