//! The rules that a manager installs in a running switch: the writer, the active version, and the implied settings.
//!
//! A managed switch forwards nothing until its rules contain `Rule::Forwarding`, so that a switch without sinks cannot leak
//! INT to hosts. With a state file, rules and the highest election survive a restart; otherwise a restarted switch waits for
//! its manager. A change is prepared (checked), saved, and then applied.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use dataplane::{sampling::Counted, watchlist};
use detect::{Match, PortRange};
use manager::{
    device::{self, Change, DtaMap, Election, Etag, FilterAlgorithm, Mode, Rule, Rules},
    flows::FlowMatch,
    instruction,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::settings::{
    Item, ManagedSettings, SwitchSettings, WatchSettings,
    filter::{self, FilterSettings},
};
use runtime::save::SavedFile;
use settings::values::{Amount, Protocol};
use terminal::CliError;
use view::{
    rules::{self, RuleView},
    switch::INSTRUCTIONS,
};

/// Maximum number of watchlist entries.
pub(super) const WATCH_ENTRIES: usize = 4096;

/// The rules of a managed switch.
#[derive(Debug)]
pub struct Managed {
    rules: Rules,
    /// The highest election with which a manager has claimed the switch.
    election: Election,
    /// Time at which the manager last claimed, changed rules or renewed its lease; initially the start.
    renewed: Instant,
    /// Time of the start, ns; part of the version, so that versions of different runs differ.
    start: u64,
    /// Number of changes since the start.
    changes: u64,
    file: Option<Arc<SavedFile>>,
    version: watch::Sender<Version>,
}

/// The version that a manager's long poll waits on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The version of the rules, as an ETag.
    pub etag: String,
    /// Number of changes of neighbours since the start.
    pub neighbours: u64,
}

/// The contents of the state file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    election: Election,
    rules: Vec<RuleView>,
}

/// A manager's request to the switch.
#[derive(Clone, Debug)]
pub enum Proposal {
    /// Claims the role of the only writer.
    Claim(Election),
    /// Changes the rules, as the only writer.
    Apply {
        /// The election of the writer.
        election: Election,
        /// The version that the changes were computed from.
        etag: Etag,
        /// The changes, all or none.
        changes: Vec<Change>,
    },
}

/// A checked proposal, to be saved and then applied.
#[derive(Clone, Debug)]
pub struct Prepared {
    rules: Rules,
    election: Election,
    /// The version for which it was prepared.
    before: Etag,
    file: Option<Arc<SavedFile>>,
}

/// The reason a proposal is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The switch has no `[switch.managed]`.
    NotManaged,
    /// Another manager has a higher election, the given one.
    NotPrimary(Election),
    /// The rules have another version.
    Stale,
    /// The rules contradict each other, or this switch cannot execute them.
    Wrong(String),
}

impl Managed {
    /// Opens the rules, from the state file if one is configured and exists.
    ///
    /// # Errors
    /// The file is unreadable; the message suggests a fix.
    pub fn open(settings: &ManagedSettings, start: u64) -> Result<Self, CliError> {
        let file = settings.state.clone().map(|path| SavedFile::new(path, 0o666));
        let saved = file.as_deref().map(load).transpose()?.flatten();
        let (election, rules) = saved.unwrap_or_default();
        let managed = Self {
            rules,
            election,
            renewed: Instant::now(),
            start,
            changes: 0,
            file,
            version: watch::channel(Version::default()).0,
        };
        managed.publish();
        if !managed.forwards() {
            tracing::info!("waiting for the manager: the switch forwards nothing until it has its rules");
        }
        Ok(managed)
    }

    /// Returns the active rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the highest election with which a manager has claimed the switch.
    pub fn election(&self) -> Election {
        self.election
    }

    /// Renews the lease of the manager that claimed the switch.
    ///
    /// # Errors
    /// Another manager has claimed it.
    pub fn renew(&mut self, election: Election) -> Result<(), Refused> {
        if election != self.election {
            return Err(Refused::NotPrimary(self.election));
        }
        self.renewed = Instant::now();
        Ok(())
    }

    /// Returns the time since the manager's last request as the writer.
    pub fn silence(&self) -> Duration {
        self.renewed.elapsed()
    }

    /// Returns the version of the rules.
    pub fn etag(&self) -> Etag {
        Etag(format!("{:x}-{}", self.start, self.changes))
    }

    /// Returns a receiver that is notified of each new version.
    pub fn versions(&self) -> watch::Receiver<Version> {
        self.version.subscribe()
    }

    /// Sets the number of changes of neighbours.
    pub fn set_neighbours(&self, changes: u64) {
        self.version.send_if_modified(|version| {
            let before = std::mem::replace(&mut version.neighbours, changes);
            before != changes
        });
    }

    fn publish(&self) {
        self.version.send_modify(|version| version.etag = self.etag().0);
    }

    /// Returns whether the switch may forward packets.
    pub fn forwards(&self) -> bool {
        self.rules.contains(&Rule::Forwarding)
    }

    /// Sets a port's INT roles. The port is down until the switch may forward.
    pub fn fit(&self, port: &mut dataplane::router::Port) {
        let number = u32::from(port.number);
        port.source = Some(self.rules.contains(&Rule::Source(number)));
        port.sink = Some(self.rules.contains(&Rule::Sink(number)));
        port.up &= self.forwards();
    }

    /// Returns the map of DTA collectors, if there is one.
    pub fn dta_map(&self) -> Option<&Arc<DtaMap>> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::DtaMap(map) => Some(map),
            _ => None,
        })
    }

    /// Returns the instruction bits that the switch executes.
    pub fn bits(&self) -> u16 {
        bits(&self.rules)
    }

    /// Returns the settings of the file, overridden by the rules.
    ///
    /// # Errors
    /// Checked rules never fail.
    pub fn settings(&self, file: &SwitchSettings) -> Result<SwitchSettings, String> {
        overlay(&self.rules, file)
    }

    /// Checks a proposal. `file` has the settings without rules.
    ///
    /// # Errors
    /// The reason for refusing it; nothing changes.
    pub fn prepare(&self, proposal: Proposal, file: &SwitchSettings) -> Result<Prepared, Refused> {
        match proposal {
            // A claim must exceed the election: with equal elections neither manager could fence off the other.
            Proposal::Claim(election) if election <= self.election => Err(Refused::NotPrimary(self.election)),
            Proposal::Apply { election, .. } if election < self.election => {
                Err(Refused::NotPrimary(self.election))
            }
            Proposal::Claim(election) => Ok(self.prepared(self.rules.clone(), election)),
            Proposal::Apply { etag, election, .. } if etag != self.etag() || election != self.election => {
                Err(Refused::Stale)
            }
            Proposal::Apply {
                changes, election, ..
            } => {
                let rules = changed(&self.rules, &changes).map_err(Refused::Wrong)?;
                if has_map(&self.rules) && !has_map(&rules) {
                    let why = "a map of DTA collectors can be replaced, not removed: reports would have no destination";
                    return Err(Refused::Wrong(why.to_owned()));
                }
                check(&rules, file).map_err(Refused::Wrong)?;
                Ok(self.prepared(rules, election))
            }
        }
    }

    fn prepared(&self, rules: Rules, election: Election) -> Prepared {
        Prepared {
            rules,
            election,
            before: self.etag(),
            file: self.file.clone(),
        }
    }

    /// Activates a prepared proposal. Returns the previous rules.
    ///
    /// # Errors
    /// The rules have changed since it was prepared.
    pub fn apply(&mut self, prepared: Prepared) -> Result<Rules, Refused> {
        if prepared.before != self.etag() {
            return Err(Refused::Stale);
        }
        self.election = prepared.election;
        self.renewed = Instant::now();
        self.changes += 1;
        let before = std::mem::replace(&mut self.rules, prepared.rules);
        self.publish();
        Ok(before)
    }

    /// Restores the rules that [`Managed::apply`] returned.
    pub fn restore(&mut self, rules: Rules) {
        self.rules = rules;
        self.changes += 1;
        self.publish();
    }

    /// Returns the active rules and election, to be saved again.
    pub fn current(&self) -> Prepared {
        Prepared {
            rules: self.rules.clone(),
            election: self.election,
            before: self.etag(),
            file: self.file.clone(),
        }
    }
}

impl Prepared {
    /// Writes the state file, if there is one. On return, the rules survive a power failure.
    ///
    /// # Errors
    /// A sentence with a suggested fix.
    pub fn save(&self) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let saved = Saved {
            election: self.election,
            rules: rules::views(&self.rules),
        };
        let text = serde_json::to_vec_pretty(&saved).map_err(std::io::Error::from);
        let written = text.and_then(|mut text| {
            text.push(b'\n');
            file.replace(text)
        });
        written.map_err(|error| {
            format!(
                "cannot save the rules in {}: {error}; {}",
                file.path().display(),
                settings::remedy(&error).unwrap_or("correct [switch.managed] state")
            )
        })
    }
}

/// Loads the saved election and rules, or returns `None` if there is no file yet.
fn load(file: &SavedFile) -> Result<Option<(Election, Rules)>, CliError> {
    let text = match file.read() {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(file, &error)),
    };
    let saved: Saved = serde_json::from_slice(&text).map_err(|error| unreadable(file, &error))?;
    let rules = rules::rules(&saved.rules).map_err(|error| unreadable(file, &error))?;
    Ok(Some((saved.election, rules)))
}

fn unreadable(file: &SavedFile, error: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!(
        "cannot read the rules in {}: {error}; remove the file, and the switch waits for its manager",
        file.path().display()
    ))
}

fn has_map(rules: &Rules) -> bool {
    rules.iter().any(|rule| matches!(rule, Rule::DtaMap(_)))
}

/// Returns the rules after changes, or the reason they are invalid.
fn changed(rules: &Rules, changes: &[Change]) -> Result<Rules, String> {
    let mut after = rules.clone();
    for change in changes {
        match change {
            Change::Remove(rule) if !after.remove(rule) => {
                return Err(format!(
                    "there is no rule `{rule}` to remove; read the rules again"
                ));
            }
            Change::Remove(_) => {}
            Change::Add(rule) => {
                after.insert(rule.clone());
            }
        }
    }
    // Rules are sorted, so most conflicting ones are adjacent; watch and filter keys need a set.
    let mut last = None::<&Rule>;
    let mut keys = std::collections::BTreeSet::new();
    for rule in &after {
        let twice = match rule {
            Rule::Watch(watch) => !keys.insert((true, watch.key)),
            Rule::Filter(filter) => !keys.insert((false, filter.key)),
            _ => last.is_some_and(|last| last.same_entry(rule)),
        };
        if twice {
            return Err(format!(
                "`{rule}` and another rule need the same entry; remove one"
            ));
        }
        last = Some(rule);
    }
    Ok(after)
}

/// Checks that this switch can execute the rules.
fn check(rules: &Rules, file: &SwitchSettings) -> Result<(), String> {
    let watched = rules.iter().filter(|rule| matches!(rule, Rule::Watch(_))).count();
    if watched > WATCH_ENTRIES {
        return Err(format!(
            "the watchlist has room for {WATCH_ENTRIES} entries, not for {watched}; use fewer intents, or wider prefixes"
        ));
    }
    for rule in rules {
        let port = match rule {
            Rule::Sink(port) | Rule::Source(port) => *port,
            Rule::DtaMap(map) => {
                check_map(map, file)?;
                continue;
            }
            Rule::Instruction(bit) if instruction::bit(*bit) & INSTRUCTIONS == 0 => {
                return Err(format!(
                    "this switch does not measure {}",
                    instruction::name(*bit)
                ));
            }
            _ => continue,
        };
        if !file.ports.iter().any(|known| u32::from(known.number) == port) {
            return Err(format!(
                "there is no port {port}; correct `ports` of the device in the inventory"
            ));
        }
    }
    super::change::checked(&overlay(rules, file)?)
}

fn check_map(map: &DtaMap, file: &SwitchSettings) -> Result<(), String> {
    let dta = file
        .dta
        .as_ref()
        .ok_or("this switch does not report by DTA; add [switch.dta] to its file")?;
    let map = rules::collector_map(map)?;
    dta.destinations_of(&map)
        .map_err(|error| format!("switch.dta.{error}"))
        .map(|_| ())
}

fn bits(rules: &Rules) -> u16 {
    rules.iter().fold(0, |bits, rule| match rule {
        Rule::Instruction(number) => bits | instruction::bit(*number),
        _ => bits,
    })
}

/// Returns the settings of the file, overridden by the rules.
fn overlay(rules: &Rules, file: &SwitchSettings) -> Result<SwitchSettings, String> {
    let mut settings = SwitchSettings {
        managed: None,
        ..file.clone()
    };
    // A DTA section that waits for its map would fail the check here; it was checked with the file.
    settings.dta = settings.dta.filter(|dta| !dta.waits_for_map());
    let mut watched = Vec::new();
    let mut filtered = Vec::new();
    for rule in rules {
        match rule {
            Rule::Encoding(encoding) => {
                settings.mark.dscp = encoding.dscp;
                settings.l4_checksum = encoding.l4_checksum;
            }
            Rule::Session(collector) => settings.reports = Some(*collector),
            Rule::Watch(watch) => watched.push(watch),
            Rule::Filter(filter) => filtered.push(filter),
            Rule::DtaMap(_) | Rule::Sink(_) | Rule::Source(_) | Rule::Instruction(_) | Rule::Forwarding => {}
        }
    }
    // The first match applies, so narrower entries come first.
    watched.sort_by_cached_key(|watch| watch.key.by_precedence());
    filtered.sort_by_cached_key(|filter| filter.key.by_precedence());
    settings.watch = watched
        .into_iter()
        .map(|watch| watch_settings(watch))
        .collect::<Result<_, _>>()?;
    settings.filter = filtered
        .into_iter()
        .map(|filter| filter_settings(filter))
        .collect::<Result<_, _>>()?;
    Ok(settings)
}

fn watch_settings(watch: &device::Watch) -> Result<WatchSettings, String> {
    let items = Item::from_bits(watch.bits).ok_or_else(|| {
        let other = watch.bits & !INSTRUCTIONS;
        format!("this switch does not measure {}", instruction::names(other))
    })?;
    let flows = flows(&watch.key)?;
    Ok(WatchSettings {
        src: flows.src,
        dst: flows.dst,
        sport: written(flows.src_port),
        dport: written(flows.dst_port),
        proto: flows.proto.map(Protocol),
        mode: match watch.mode {
            Mode::Md => watchlist::Mode::Md21,
            Mode::Mx => watchlist::Mode::Mx21,
            Mode::Postcard => watchlist::Mode::Postcard,
            Mode::Sf => watchlist::Mode::Sf,
        },
        items,
        hops: watch.hops,
        sample: watch.sample,
        drops: watch.drops,
    })
}

fn filter_settings(rule: &device::Filter) -> Result<FilterSettings, String> {
    let flows = flows(&rule.key)?;
    let mut settings = FilterSettings {
        src: flows.src,
        dst: flows.dst,
        sport: written(flows.src_port),
        dport: written(flows.dst_port),
        proto: flows.proto.map(Protocol),
        // The names of the algorithms are the same for managers and switches.
        algorithm: filter::FilterAlgorithm::from_name(rule.algorithm.name()),
        ..FilterSettings::default()
    };
    match rule.algorithm {
        FilterAlgorithm::Noop | FilterAlgorithm::Change => {}
        FilterAlgorithm::PerHop | FilterAlgorithm::PerFlow => {
            let metric = filter::FilterMetric::from_name(rule.metric.name()).ok_or_else(|| {
                format!(
                    "a filter cannot compare {}; use another metric in `report.thresholds`",
                    rule.metric
                )
            })?;
            settings.metric = Some(metric);
            settings.threshold = Some(Amount::new(rule.metric, rule.threshold));
        }
        FilterAlgorithm::Rule => settings.rule = Some(rule.rule.as_deref().unwrap_or_default().to_owned()),
    }
    Ok(settings)
}

/// Converts a key to the switch's match, which has no DSCP.
fn flows(key: &FlowMatch) -> Result<Match, String> {
    if key.dscp.is_some() {
        return Err("this switch does not match the DSCP; remove `dscp` from the intent".to_owned());
    }
    Ok(key.to_match())
}

/// Converts a port range to its written form, where `None` means all ports.
fn written(ports: PortRange) -> Option<PortRange> {
    (ports != PortRange::ANY).then_some(ports)
}

/// Returns the watchlist entries of `rules` that packets have matched, with the counts of `switch`.
pub fn matched(rules: &Rules, switch: &dataplane::Switch) -> Vec<(FlowMatch, Counted)> {
    let keys = rules.iter().filter_map(|rule| match rule {
        Rule::Watch(watch) => Some((watch.key.to_match(), watch.key)),
        _ => None,
    });
    let keys: HashMap<Match, FlowMatch> = keys.collect();
    let counted = switch.matched().filter(|(_, counted)| counted.matched > 0);
    counted
        .filter_map(|(watch, counted)| Some((*keys.get(&watch.flows)?, counted)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::{for_tests, settings::dta::DtaSettings};
    use view::rules::for_tests::{every_rule, map_of};

    fn file() -> SwitchSettings {
        let text = "[switch]\nnode = 1\n[switch.managed]\n[switch.dta]\n[[switch.ports]]\nnumber = 1\ninterface = \"a\"\nedge = true\n";
        for_tests::parse(text).unwrap()
    }

    fn open(state: Option<PathBuf>) -> Managed {
        Managed::open(&ManagedSettings { state }, 7).unwrap()
    }

    fn election(term: u64) -> Election {
        Election { term, epoch: 1 }
    }

    fn claim(managed: &mut Managed, term: u64) -> Result<(), Refused> {
        let prepared = managed.prepare(Proposal::Claim(election(term)), &file())?;
        managed.apply(prepared).map(|_| ())
    }

    fn apply(managed: &mut Managed, term: u64, changes: &[Change]) -> Result<(), Refused> {
        let etag = managed.etag();
        let changes = changes.to_vec();
        let prepared = managed.prepare(
            Proposal::Apply {
                election: election(term),
                etag,
                changes,
            },
            &file(),
        )?;
        prepared.save().map_err(Refused::Wrong)?;
        managed.apply(prepared).map(|_| ())
    }

    fn adds(rules: Rules) -> Vec<Change> {
        rules.into_iter().map(Change::Add).collect()
    }

    #[test]
    fn the_highest_election_writes_and_only_from_the_present_version() {
        let mut managed = open(None);
        assert_eq!(managed.etag().0, "7-0");
        claim(&mut managed, 2).unwrap();
        assert_eq!(claim(&mut managed, 1), Err(Refused::NotPrimary(election(2))));
        // Another manager with the same election is not heard either.
        assert_eq!(claim(&mut managed, 2), Err(Refused::NotPrimary(election(2))));
        assert_eq!(apply(&mut managed, 1, &[]), Err(Refused::NotPrimary(election(2))));
        // An election that never claimed does not know the version either.
        assert_eq!(apply(&mut managed, 3, &[]), Err(Refused::Stale));
        let etag = managed.etag();
        let late = managed.prepare(
            Proposal::Apply {
                election: election(2),
                etag,
                changes: adds([Rule::Sink(1)].into()),
            },
            &file(),
        );
        let versions = managed.versions();
        apply(&mut managed, 2, &adds([Rule::Forwarding].into())).unwrap();
        assert!(versions.has_changed().unwrap());
        assert_eq!(managed.apply(late.unwrap()).unwrap_err(), Refused::Stale);
        assert_eq!(
            (managed.rules(), managed.forwards()),
            (&Rules::from([Rule::Forwarding]), true)
        );
    }

    #[test]
    fn rules_become_settings() {
        let mut managed = open(None);
        claim(&mut managed, 1).unwrap();
        apply(&mut managed, 1, &adds(every_rule())).unwrap();
        let roles = |number| {
            let mut port = dataplane::router::Port::new(number, [0; 6]);
            managed.fit(&mut port);
            (port.is_source(), port.is_sink(), port.up)
        };
        assert_eq!(
            (roles(1), roles(2), managed.bits()),
            ((true, true, true), (false, false, true), 0xa000)
        );
        let settings = managed.settings(&file()).unwrap();
        assert_eq!(
            (settings.mark.dscp, settings.l4_checksum),
            (9, device::L4Checksum::Zero)
        );
        assert_eq!(settings.reports, "127.0.0.1:9555".parse().ok());
        let modes: Vec<&str> = settings.watch.iter().map(|watch| watch.mode.name()).collect();
        assert_eq!(modes, ["md", "postcard", "mx"]);
        let list = crate::settings::watchlist(&settings.watch);
        let first = list.entries()[0];
        assert_eq!((first.bitmap, first.hops, first.drops), (0xf700, 16, true));
        let rules: Vec<Option<&str>> = settings
            .filter
            .iter()
            .map(|filter| filter.rule.as_deref())
            .collect();
        assert!(
            rules.len() == 2 && rules.contains(&Some("max(queue_occupancy) > 50 or loop")),
            "{rules:?}"
        );
    }

    #[test]
    fn a_map_of_dta_collectors_is_replaced_and_never_removed() {
        let rule = |names: &[&str]| Rule::DtaMap(Arc::new(rules::dta_map(&map_of(names)).unwrap()));
        let names = |managed: &Managed| managed.dta_map().map(|map| map.collectors.clone());
        let mut managed = open(None);
        claim(&mut managed, 1).unwrap();
        apply(&mut managed, 1, &[Change::Add(rule(&["a"]))]).unwrap();
        let grown = [Change::Remove(rule(&["a"])), Change::Add(rule(&["a", "b"]))];
        apply(&mut managed, 1, &grown).unwrap();
        let refused = |error: Result<(), Refused>| match error {
            Err(Refused::Wrong(message)) => message,
            other => panic!("{other:?}"),
        };
        let removed = refused(apply(&mut managed, 1, &[Change::Remove(rule(&["a", "b"]))]));
        assert!(removed.contains("can be replaced, not removed"), "{removed}");
        // A map of the other family, and a switch without DTA.
        let mut map = map_of(&["a"]);
        map.collectors[0].reports = "[fd00::9]:40040".parse().ok();
        let v6 = Change::Add(Rule::DtaMap(Arc::new(rules::dta_map(&map).unwrap())));
        let message = refused(apply(&mut managed, 1, &[Change::Remove(rule(&["a", "b"])), v6]));
        assert!(
            message.contains("switch.dta.control: 0.0.0.0:40044 is of another family"),
            "{message}"
        );
        assert_eq!(names(&managed), Some(vec!["a".to_owned(), "b".to_owned()]));
        // What the file says of collectors is replaced, as many as they are.
        let dta = file().dta.unwrap();
        let own = DtaSettings {
            collectors: vec!["192.0.2.9:40040".parse().unwrap()],
            ..dta
        };
        let (to, spread) = own.destinations_of(&map_of(&["a", "b"])).unwrap();
        let addresses: Vec<String> = to.iter().map(ToString::to_string).collect();
        assert_eq!(
            (addresses, spread.collectors()),
            (
                vec!["127.0.0.1:40040".to_owned(), "127.0.0.1:40041".to_owned()],
                2
            )
        );
        let without = SwitchSettings { dta: None, ..file() };
        let message = check(&Rules::from([rule(&["a"])]), &without).unwrap_err();
        assert!(
            message.contains("does not report by DTA; add [switch.dta]"),
            "{message}"
        );
    }

    #[test]
    fn what_the_switch_cannot_do_is_refused_as_a_whole() {
        let mut managed = open(None);
        claim(&mut managed, 1).unwrap();
        let watch = |change: &dyn Fn(&mut device::Watch)| {
            let mut watch = device::Watch {
                key: FlowMatch::default(),
                mode: Mode::Md,
                bits: 0x8000,
                hops: 16,
                sample: 1,
                drops: false,
            };
            change(&mut watch);
            Rule::Watch(watch.into())
        };
        let cases = [
            (
                vec![Change::Add(Rule::Sink(9))],
                "there is no port 9; correct `ports`",
            ),
            (
                vec![Change::Remove(Rule::Sink(1))],
                "there is no rule `port 1: sink` to remove",
            ),
            (
                vec![Change::Add(Rule::Instruction(15))],
                "this switch does not measure",
            ),
            (
                vec![Change::Add(watch(&|watch| watch.sample = 0))],
                "a sample of 0 is invalid; write sample = 1 or more",
            ),
            (
                vec![Change::Add(watch(&|watch| watch.key.dscp = Some(1)))],
                "does not match the DSCP; remove `dscp`",
            ),
            (
                vec![Change::Add(watch(&|watch| watch.bits = 0x8001))],
                "this switch does not measure",
            ),
            (
                vec![
                    Change::Add(watch(&|_| ())),
                    Change::Add(watch(&|watch| watch.hops = 3)),
                ],
                "the same entry",
            ),
            (
                adds(
                    [9, 10]
                        .map(|dscp| {
                            Rule::Encoding(device::Encoding {
                                dscp,
                                ..Default::default()
                            })
                        })
                        .into(),
                ),
                "the same entry",
            ),
            (
                adds(
                    [Rule::Encoding(device::Encoding {
                        dscp: 64,
                        ..Default::default()
                    })]
                    .into(),
                ),
                "switch.mark",
            ),
        ];
        for (changes, reason) in cases {
            let mut all = adds([Rule::Sink(1)].into());
            let removes = matches!(changes[0], Change::Remove(_));
            all.truncate(usize::from(!removes));
            all.extend(changes);
            match apply(&mut managed, 1, &all) {
                Err(Refused::Wrong(message)) => assert!(message.contains(reason), "{message}"),
                other => panic!("{reason}: {other:?}"),
            }
            assert!(managed.rules().is_empty());
        }
    }

    #[test]
    fn rules_and_election_survive_a_restart_in_the_state_file() {
        let state = std::env::temp_dir().join(format!("hopwise-rules-{}.json", std::process::id()));
        let mut managed = open(Some(state.clone()));
        claim(&mut managed, 3).unwrap();
        apply(&mut managed, 3, &adds(every_rule())).unwrap();
        let again = Managed::open(
            &ManagedSettings {
                state: Some(state.clone()),
            },
            8,
        )
        .unwrap();
        assert_eq!((again.rules(), again.election()), (&every_rule(), election(3)));
        assert_ne!(again.etag(), managed.etag());
        fs::write(&state, "{}").unwrap();
        let error = Managed::open(
            &ManagedSettings {
                state: Some(state.clone()),
            },
            9,
        )
        .unwrap_err();
        assert!(error.to_string().contains("remove the file"), "{error}");
        fs::remove_file(state).unwrap();
    }
}
