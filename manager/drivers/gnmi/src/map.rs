//! Path maps: data that defines how rules become objects of a gNMI device, and where the device has facts about its ports.
//!
//! A map is a TOML file. For each kind of rule it lists the objects that represent the rule: path of the list, name of the
//! entry, and leaves. Values are strings with at most one placeholder in braces. It is a key of the rule in the text format of
//! the driver `files` (`{dport}` of `watch`), or a value derived from the rule (`{id}`, `{interface}`, `{collector_address}`,
//! `{collector_port}`).

use std::collections::{BTreeMap, BTreeSet};

use manager::device::{Capabilities, FilterAlgorithm, L4Checksum, MatchKinds, Mode, PortId, Restart, Rule};
use manager::instruction;
use manager::rule_limits::RuleLimits;
use settings::read::{ConfigError, Reader, span_of};
use settings::section;
use settings::setting::{Setting, tables};

use crate::message::Path;
use crate::path;

/// Maximum number of objects in a map.
const MAX_OBJECTS: usize = 32;
/// Maximum number of leaves in an object.
const MAX_LEAVES: usize = 64;
/// Maximum number of path steps of a leaf inside its object.
const MAX_DEPTH: usize = 8;
/// Derived placeholders: a digest of the rule, the interface of its port, and the collector's address and UDP port.
pub(crate) const DERIVED: [&str; 4] = ["id", "interface", "collector_address", "collector_port"];
/// Maps that are built into the program, as name and text.
pub const SHIPPED: [(&str, &str); 1] = [("sonic-tam", include_str!("../maps/sonic-tam.toml"))];

section! {
    /// A path map: objects of a device for rules.
    pub(crate) struct MapSettings("the path map") {
        /// Description of the devices that it is for.
        pub(crate) device: String = String::new(),
        /// The device knows master arbitration (`gnmi_ext.MasterArbitration`). `false`: nothing keeps two managers apart.
        pub(crate) arbitration: bool = true,
        /// Modes in which it measures: `md`, `mx`, `postcard`, `sf`.
        pub(crate) modes: Vec<String> = Vec::new(),
        /// Numbers of the instruction bits that it fills.
        pub(crate) bits: Vec<u8> = Vec::new(),
        /// Entries of its watchlist.
        pub(crate) watch_entries: u32 = 64,
        /// Kinds of keys of its watchlist: `ipv6`, `prefixes`, `wildcards`, `ranges`, `dscp`.
        pub(crate) matches: Vec<String> = Vec::new(),
        /// It can measure one packet of N.
        pub(crate) sampling: bool = false,
        /// Treatments of the L4 checksum that it supports: `update`, `leave`, `zero`.
        pub(crate) l4_checksum: Vec<String> = Vec::new(),
        /// Source and sink of a port are one setting.
        pub(crate) joint_roles: bool = false,
        /// It executes all its instructions always, and needs no object for them.
        pub(crate) always_instructions: bool = false,
        /// The only encoding of INT that it knows, such as `dscp=23 l4_checksum=update`. Not set: by an object.
        pub(crate) always_encoding: Option<String> = None,
        /// Interfaces by number of the port. Without them, the number is `state/ifindex` of the interface.
        pub(crate) ports: BTreeMap<u32, String> = BTreeMap::new(),
        /// List of interfaces; empty: none.
        pub(crate) interfaces: String = "/interfaces/interface".to_owned(),
        /// List of interfaces with LLDP neighbours; empty: none.
        pub(crate) lldp: String = "/lldp/interfaces/interface".to_owned(),
        /// `state/mtu` of an interface is this longer than the longest IP packet, bytes.
        pub(crate) mtu_overhead: u32 = 14,
        /// Keys of rules that no object has, and their only value: `drops = "no"`.
        pub(crate) defaults: BTreeMap<String, String> = BTreeMap::new(),
        /// The objects of rules.
        pub(crate) objects: Vec<ObjectSettings> = Vec::new(),
    }
}

section! {
    /// An object of a rule.
    pub(crate) struct ObjectSettings("[[objects]]") {
        /// The kind of the rule: `encoding`, `session`, `sink`, `instruction`, `source` or `watch`.
        pub(crate) rule: String = String::new(),
        /// Path of the list, or of the table.
        pub(crate) path: String = String::new(),
        /// The key leaf of the list.
        pub(crate) key: String = "name".to_owned(),
        /// The name of the entry. It begins with `hopwise`: by that the driver knows its own.
        pub(crate) name: String = String::new(),
        /// Leaves that are texts. `config/description` is the leaf `description` in the container `config`.
        pub(crate) texts: BTreeMap<String, String> = BTreeMap::new(),
        /// Leaves that are numbers.
        pub(crate) numbers: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// Kinds of rules that a map can express, each with its keys.
const KINDS: [(&str, &[&str]); 6] = [
    ("encoding", &["dscp", "l4_checksum"]),
    ("session", &["collector"]),
    ("sink", &["port"]),
    ("instruction", &["bit"]),
    ("source", &["port"]),
    (
        "watch",
        &[
            "src", "dst", "sport", "dport", "proto", "dscp", "mode", "bits", "hops", "sample", "drops",
        ],
    ),
];

/// Returns the keys of a kind of rule, or none for an unknown kind.
pub(crate) fn keys_of(kind: &str) -> &'static [&'static str] {
    KINDS
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[], |(_, keys)| keys)
}

/// A string with at most one placeholder: `before{placeholder}after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    before: String,
    pub(crate) placeholder: Option<String>,
    after: String,
}

impl Template {
    fn new(text: &str) -> Result<Self, String> {
        let (before, placeholder, after) = match text.split_once('{') {
            None => (text, None, ""),
            Some((before, rest)) => {
                let (name, after) = rest.split_once('}').ok_or_else(|| not_a_template(text))?;
                (before, Some(name.to_owned()), after)
            }
        };
        if [before, after].iter().any(|part| part.contains(['{', '}'])) {
            return Err(not_a_template(text));
        }
        Ok(Self {
            before: before.to_owned(),
            placeholder,
            after: after.to_owned(),
        })
    }

    /// Renders the string with the placeholder's value, or `None` if `values` lacks it.
    pub(crate) fn fill(&self, values: &BTreeMap<String, String>) -> Option<String> {
        let value = match &self.placeholder {
            Some(name) => values.get(name)?,
            None => "",
        };
        Some(format!("{}{value}{}", self.before, self.after))
    }

    /// Extracts the placeholder's value from a string of this form; empty without a placeholder, `None` if the string differs.
    pub(crate) fn value<'t>(&self, text: &'t str) -> Option<&'t str> {
        let value = text
            .strip_prefix(self.before.as_str())?
            .strip_suffix(self.after.as_str())?;
        (self.placeholder.is_some() || value.is_empty()).then_some(value)
    }
}

fn not_a_template(text: &str) -> String {
    format!("`{text}` needs one placeholder in braces at most, such as \"hopwise_{{id}}\"")
}

/// An object that represents a rule, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) path: Path,
    pub(crate) key: String,
    pub(crate) name: Template,
    /// Leaves by path: the template, and whether the leaf is a number.
    pub(crate) leaves: BTreeMap<String, (Template, bool)>,
}

/// A checked path map.
#[derive(Clone, Debug, PartialEq)]
pub struct PathMap {
    pub(crate) arbitration: bool,
    pub(crate) always_instructions: bool,
    pub(crate) always_encoding: Option<Rule>,
    pub(crate) ports: BTreeMap<PortId, String>,
    pub(crate) interfaces: Option<Path>,
    pub(crate) lldp: Option<Path>,
    pub(crate) mtu_overhead: u32,
    pub(crate) defaults: BTreeMap<String, String>,
    pub(crate) objects: Vec<Object>,
    capabilities: Capabilities,
}

/// Returns the text of a built-in map, or `None` if there is none with this name.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .find(|(shipped, _)| *shipped == name)
        .map(|(_, text)| *text)
}

impl PathMap {
    /// Parses and checks a map. `file` is its name in messages.
    ///
    /// # Errors
    /// [`ConfigError`], which lists every problem with its line and a fix.
    pub fn read(text: &str, file: &str) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(text);
        let mut map = None;
        if let Some(root) = reader.parse(tables::<MapSettings>)
            && let Some(settings) = MapSettings::read(&root, &mut reader)
        {
            let mut objects = Vec::new();
            for (index, object) in settings.objects.iter().enumerate() {
                match self::object(object) {
                    Ok(object) => objects.push(object),
                    Err(message) => {
                        reader.refuse(span_of(&root, &["objects", &index.to_string()]), message);
                    }
                }
            }
            if reader.has_no_problems() {
                map = checked(settings, objects)
                    .map_err(|(key, message)| reader.refuse(span_of(&root, &[key]), message))
                    .ok();
            }
        }
        reader.finish(file)?;
        // There is a map if there was no problem; the alternative only produces an error.
        map.map_or_else(|| Self::read("objects = 0", file), Ok)
    }

    /// Returns the capabilities of the devices that the map describes.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns whether the device supports gNMI's master arbitration.
    pub fn arbitrates(&self) -> bool {
        self.arbitration
    }
}

/// Checks the settings of an object and parses its path and templates.
fn object(settings: &ObjectSettings) -> Result<Object, String> {
    let ObjectSettings {
        rule,
        path,
        key,
        name,
        texts,
        numbers,
    } = settings;
    let keys = keys_of(rule);
    if keys.is_empty() {
        let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
        return Err(format!(
            "there is no rule `{rule}`; use one of: {}",
            kinds.join(", ")
        ));
    }
    if !name.starts_with("hopwise") {
        return Err("begin `name` with \"hopwise\": by that the driver knows its own".to_owned());
    }
    if texts.len() + numbers.len() > MAX_LEAVES {
        return Err(format!(
            "an object has at most {MAX_LEAVES} leaves; leave some out"
        ));
    }
    let mut leaves = BTreeMap::new();
    for (all, is_number) in [(texts, false), (numbers, true)] {
        for (leaf, text) in all {
            if leaf == key
                || leaves
                    .insert(leaf.clone(), (template(rule, text)?, is_number))
                    .is_some()
            {
                return Err(format!("the leaf `{leaf}` is there twice; remove one"));
            }
        }
    }
    for leaf in leaves.keys() {
        if leaf.split('/').any(str::is_empty) || leaf.split('/').count() > MAX_DEPTH {
            return Err(format!(
                "`{leaf}` is not a leaf; write `name`, or `config/name` if it is in a container"
            ));
        }
        let outer = leaves
            .keys()
            .chain([key])
            .find(|outer| leaf.starts_with(&format!("{outer}/")));
        if let Some(outer) = outer {
            return Err(format!("`{leaf}` is inside of the leaf `{outer}`; remove one"));
        }
    }
    let path = path::parse(path)?;
    if path.elem.iter().any(|elem| !elem.key.is_empty())
        && path.elem.last().is_some_and(|last| !last.key.is_empty())
    {
        return Err("the path is that of the list: leave the keys of its last step out".to_owned());
    }
    Ok(Object {
        kind: rule.clone(),
        path,
        key: key.clone(),
        name: template(rule, name)?,
        leaves,
    })
}

/// Parses a template and checks that its placeholder is a key of the rule or derived.
fn template(rule: &str, text: &str) -> Result<Template, String> {
    let template = Template::new(text)?;
    let keys = keys_of(rule);
    match &template.placeholder {
        Some(name) if !keys.contains(&name.as_str()) && !DERIVED.contains(&name.as_str()) => Err(format!(
            "`{rule}` has no `{{{name}}}`; use one of: {}, {}",
            keys.join(", "),
            DERIVED.join(", ")
        )),
        _ => Ok(template),
    }
}

/// Parses an optional path setting; an empty one is `None`. An error names the setting's key.
fn optional_path(key: &'static str, text: &str) -> Result<Option<Path>, (&'static str, String)> {
    if text.is_empty() {
        return Ok(None);
    }
    path::parse(text).map(Some).map_err(|error| (key, error))
}

/// Builds the map from settings. An error is the setting's key and a message.
fn checked(settings: MapSettings, objects: Vec<Object>) -> Result<PathMap, (&'static str, String)> {
    if objects.len() > MAX_OBJECTS {
        return Err((
            "objects",
            format!("a map has at most {MAX_OBJECTS} objects; leave some out"),
        ));
    }
    let always_encoding = match &settings.always_encoding {
        Some(pairs) => Some(
            files::parse_rule(&format!("encoding {pairs}")).map_err(|error| ("always_encoding", error))?,
        ),
        None => None,
    };
    // All objects of one rule must have the same placeholder in their names, because that groups them again.
    let names: BTreeSet<(&str, &Option<String>)> = objects
        .iter()
        .map(|object| (object.kind.as_str(), &object.name.placeholder))
        .collect();
    for (kind, _) in KINDS {
        let given = names.iter().filter(|(name, _)| *name == kind).count();
        let is_needed = match kind {
            "encoding" => always_encoding.is_none(),
            "instruction" => !settings.always_instructions,
            "source" => !settings.joint_roles,
            _ => true,
        };
        if given == 0 && is_needed {
            return Err(("objects", format!("no object has rule = \"{kind}\"; add one")));
        }
        if given > 1 {
            let message =
                format!("the names of the objects of `{kind}` need the same placeholder; correct them");
            return Err(("objects", message));
        }
    }
    Ok(PathMap {
        arbitration: settings.arbitration,
        always_instructions: settings.always_instructions,
        always_encoding,
        interfaces: optional_path("interfaces", &settings.interfaces)?,
        lldp: optional_path("lldp", &settings.lldp)?,
        mtu_overhead: settings.mtu_overhead,
        capabilities: capabilities(&settings)?,
        ports: settings.ports,
        defaults: settings.defaults,
        objects,
    })
}

/// Parses the words of a list setting. An error is the setting's key and a message.
fn parse_all<T: Ord>(
    key: &'static str,
    words: &[String],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, (&'static str, String)> {
    words
        .iter()
        .map(|word| parse(word).ok_or_else(|| (key, format!("there is no `{word}` here; correct it"))))
        .collect()
}

fn capabilities(settings: &MapSettings) -> Result<Capabilities, (&'static str, String)> {
    let matches = parse_all("matches", &settings.matches, |word| {
        ["ipv6", "prefixes", "wildcards", "ranges", "dscp"]
            .into_iter()
            .find(|known| *known == word)
    })?;
    let checksums = [L4Checksum::Update, L4Checksum::Leave, L4Checksum::Zero];
    let l4_checksum = parse_all("l4_checksum", &settings.l4_checksum, |word| {
        checksums.into_iter().find(|checksum| checksum.name() == word)
    })?;
    let modes = parse_all("modes", &settings.modes, Mode::from_name)?;
    if settings.bits.iter().any(|bit| *bit > 15) {
        return Err((
            "bits",
            "an instruction bit is a number from 0 to 15; correct it".to_owned(),
        ));
    }
    Ok(Capabilities {
        modes,
        bits: settings
            .bits
            .iter()
            .fold(0, |bits, bit| bits | instruction::bit(*bit)),
        matches: MatchKinds {
            ipv6: matches.contains("ipv6"),
            prefixes: matches.contains("prefixes"),
            wildcards: matches.contains("wildcards"),
            ranges: matches.contains("ranges"),
            dscp: matches.contains("dscp"),
            needs_port: false,
            protocol: true,
        },
        watch_entries: settings.watch_entries as usize,
        filter_entries: 0,
        filters: BTreeSet::<FilterAlgorithm>::new(),
        rules: RuleLimits::default(),
        sampling: settings.sampling,
        dta: false,
        sink: true,
        joint_roles: settings.joint_roles,
        l4_checksum,
        restart: Restart::Keeps,
    })
}
