//! A table of the node behind each egress interface, with the times at which reports showed it there. It outlives a link
//! failure, so that packets dropped in front of the link can be attributed to it. It is saved in a file beside the store, and
//! so survives a restart.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use collector::{LinkUse, event::Nanos};
use serde::{Deserialize, Serialize};

use runtime::{lock::lock, save::SavedFile};

/// The file's name in the directory of the store.
pub const FILE: &str = "links.json";
/// Maximum number of interfaces in the table, about 6 MB.
const MAX_INTERFACES: usize = 65_536;
/// Maximum number of nodes remembered behind one interface.
const MAX_ENDS: usize = 8;
/// Maximum delay between a link's first packet and its detection, ns. Links are polled every few seconds.
const DELAY: Nanos = 15_000_000_000;
/// Two nodes that alternate within this time are both behind the interface, ns.
const TOGETHER: Nanos = 60_000_000_000;
/// Minimum interval between saves for a new node.
const SOON: Duration = Duration::from_secs(10);
/// Minimum interval between saves for updated times.
const LATER: Duration = Duration::from_secs(300);

/// The table of nodes behind interfaces, and the file that it is saved in.
#[derive(Debug)]
pub struct KnownLinks {
    file: Option<Arc<SavedFile>>,
    memory: Mutex<LinkMemory>,
    saving: Mutex<Saving>,
}

/// State of the periodic saving.
#[derive(Debug, Default)]
struct Saving {
    last: Option<Instant>,
    /// The last attempt failed, and this has been logged.
    failed: bool,
}

/// Nodes behind interfaces, with the times at which packets passed.
#[derive(Debug, Default)]
pub struct LinkMemory {
    /// Nodes by (node, egress interface), in the order in which they were learned.
    ends: HashMap<(u32, u32), Vec<End>>,
    /// The most important change not saved yet: a later time (`Time`) or a new node behind an interface (`Node`).
    unsaved: Option<Unsaved>,
    /// The warning that the table is full has been logged.
    is_cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Unsaved {
    Time,
    Node,
}

/// A node behind an interface, with the first and last time at which a packet showed it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    to: u32,
    first: Nanos,
    last: Nanos,
}

impl End {
    /// Returns whether the node was seen in an interval, both ends included.
    fn overlaps(&self, from: Nanos, to: Nanos) -> bool {
        self.first <= to && self.last >= from
    }
}

/// Content of the file. Each link is (node, egress interface, node behind it, first time, last time), times in ns.
#[derive(Serialize, Deserialize)]
struct Saved {
    links: Vec<(u32, u32, u32, Nanos, Nanos)>,
}

/// The neighbour behind an interface in some interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// The node with this ID.
    Node(u32),
    /// No report has shown a neighbour.
    Unknown,
    /// More than one node: the interface was recabled, or leads to a device that forwards without reporting.
    Several,
}

impl KnownLinks {
    /// Loads the table from `file`. An unreadable file is only logged: new reports restore the table.
    pub fn open(file: Option<PathBuf>) -> Self {
        let file = file.map(|path| SavedFile::new(path, 0o600));
        let mut memory = LinkMemory::default();
        if let Some(file) = &file {
            match file.read() {
                Ok(text) => match serde_json::from_slice::<Saved>(&text) {
                    Ok(saved) => memory.adopt(&saved),
                    Err(error) => tracing::warn!(
                        file = %file.path().display(),
                        error = %error,
                        "the saved table of known interfaces cannot be read: nodes behind interfaces are unknown until reports arrive"
                    ),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(
                    file = %file.path().display(),
                    error = %error,
                    "the saved table of known interfaces cannot be read: nodes behind interfaces are unknown until reports arrive"
                ),
            }
        }
        Self {
            file,
            memory: Mutex::new(memory),
            saving: Mutex::default(),
        }
    }

    /// Returns the table, locked.
    pub fn memory(&self) -> MutexGuard<'_, LinkMemory> {
        lock(&self.memory)
    }

    /// Saves changes at intervals: a new node soon, later times less often, everything if `now` is set. May block on the disk.
    pub fn save(&self, now: bool) {
        let Some(file) = &self.file else { return };
        let mut saving = lock(&self.saving);
        let (unsaved, text) = {
            let mut memory = self.memory();
            let Some(unsaved) = memory.unsaved else { return };
            let pause = if unsaved == Unsaved::Node { SOON } else { LATER };
            if !now && saving.last.is_some_and(|last| last.elapsed() < pause) {
                return;
            }
            memory.unsaved = None;
            (unsaved, serde_json::to_vec(&memory.saved()))
        };
        saving.last = Some(Instant::now());
        let saved = text.map_err(Into::into).and_then(|text| file.replace(text));
        if let Err(error) = saved {
            let mut memory = self.memory();
            memory.unsaved = memory.unsaved.max(Some(unsaved));
            if !std::mem::replace(&mut saving.failed, true) {
                tracing::warn!(
                    file = %file.path().display(),
                    error = %error,
                    "the table of known interfaces cannot be saved: after a restart, nodes behind links that are down are unknown"
                );
            }
        } else {
            saving.failed = false;
        }
    }
}

impl LinkMemory {
    /// Updates the table with links in use.
    pub fn learn<'l>(&mut self, links: impl IntoIterator<Item = &'l LinkUse>) {
        for link in links {
            if let Some(interface) = link.egress_if {
                self.see((link.from, interface), link.to, link.last_seen);
            }
        }
    }

    /// Records that a packet passed an interface at `ts`, and that node `to` came next.
    pub fn see(&mut self, interface: (u32, u32), to: u32, ts: Nanos) {
        if self.ends.len() >= MAX_INTERFACES && !self.ends.contains_key(&interface) {
            self.forget_oldest();
        }
        let ends = self.ends.entry(interface).or_default();
        // Skip entries of the future: from a clock that was ahead, or from a capture of a later time.
        let latest = (0..ends.len())
            .filter(|i| ends[*i].to == to && ends[*i].first <= ts.saturating_add(DELAY))
            .max_by_key(|i| ends[*i].last);
        if let Some(i) = latest {
            let known = ends[i];
            if ts <= known.last {
                return;
            }
            // Extend the entry, unless another node was seen in between and the gap is long: then `to` has come back. With
            // short gaps both nodes are behind the interface at once.
            let has_another = ends
                .iter()
                .any(|end| end.to != to && known.last < end.first && end.first < ts);
            if ts - known.last <= TOGETHER || !has_another {
                ends[i].last = ts;
                self.unsaved = self.unsaved.max(Some(Unsaved::Time));
                return;
            }
        }
        if ends.len() >= MAX_ENDS
            && let Some(oldest) = (0..ends.len()).min_by_key(|i| ends[*i].last)
        {
            ends.remove(oldest);
        }
        ends.push(End {
            to,
            first: ts,
            last: ts,
        });
        self.unsaved = Some(Unsaved::Node);
    }

    /// Evicts the least recently used quarter of the interfaces.
    fn forget_oldest(&mut self) {
        let mut times: Vec<Nanos> = self.ends.values().map(|ends| last_of(ends)).collect();
        let middle = times.len() / 4;
        let (_, limit, _) = times.select_nth_unstable(middle);
        let limit = *limit;
        let mut room = middle + 1;
        self.ends.retain(|_, ends| {
            let goes = room > 0 && last_of(ends) <= limit;
            room -= usize::from(goes);
            !goes
        });
        if !std::mem::replace(&mut self.is_cut, true) {
            tracing::warn!(
                most = MAX_INTERFACES,
                "the table of known interfaces is full: the least recently used ones are evicted"
            );
        }
    }

    /// Returns the neighbour behind an interface between two times, or if no packet passed then, the latest one before.
    pub fn behind(&self, node: u32, interface: u32, from: Nanos, to: Nanos) -> Behind {
        let ends = self.ends.get(&(node, interface)).map_or(&[][..], Vec::as_slice);
        let before = ends
            .iter()
            .filter(|end| end.first <= from)
            .max_by_key(|end| end.last);
        // Links are learned with a delay, so accept one that was first seen shortly after the start of the interval.
        let soon = ends
            .iter()
            .filter(|end| end.first <= from.saturating_add(DELAY))
            .min_by_key(|end| end.first);
        let Some(known) = before.or(soon) else {
            return Behind::Unknown;
        };
        let has_another = ends.iter().any(|end| {
            end.to != known.to && (end.overlaps(from, to) || end.overlaps(known.first, known.last))
        });
        if !has_another {
            Behind::Node(known.to)
        } else {
            Behind::Several
        }
    }

    fn saved(&self) -> Saved {
        let links = self.ends.iter().flat_map(|((node, interface), ends)| {
            ends.iter()
                .map(|end| (*node, *interface, end.to, end.first, end.last))
        });
        Saved {
            links: links.collect(),
        }
    }

    fn adopt(&mut self, saved: &Saved) {
        for (node, interface, to, first, last) in &saved.links {
            if self.ends.len() >= MAX_INTERFACES && !self.ends.contains_key(&(*node, *interface)) {
                continue;
            }
            let ends = self.ends.entry((*node, *interface)).or_default();
            if ends.len() < MAX_ENDS {
                ends.push(End {
                    to: *to,
                    first: *first,
                    last: *last,
                });
            }
        }
    }
}

fn last_of(ends: &[End]) -> Nanos {
    ends.iter().map(|end| end.last).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::records::Dir;

    const SECOND: Nanos = 1_000_000_000;

    fn memory(seen: &[(u32, u64)]) -> LinkMemory {
        let mut memory = LinkMemory::default();
        seen.iter()
            .for_each(|(to, second)| memory.see((1, 5), *to, second * SECOND));
        memory
    }

    fn behind(memory: &LinkMemory, from: u64, to: u64) -> Behind {
        memory.behind(1, 5, from * SECOND, to * SECOND)
    }

    #[test]
    fn a_link_that_is_down_is_the_one_that_was_there() {
        let memory = memory(&[(7, 100), (7, 200)]);
        let node = Behind::Node(7);
        assert_eq!(
            [
                behind(&memory, 150, 160),
                behind(&memory, 150, 900),
                behind(&memory, 500, 900)
            ],
            [node; 3]
        );
        assert_eq!(behind(&memory, 90, 95), node, "it was seen a little later");
        assert_eq!(
            behind(&memory, 50, 160),
            Behind::Unknown,
            "nothing is known of the time before"
        );
        assert_eq!(memory.behind(1, 6, 0, SECOND), Behind::Unknown);
    }

    #[test]
    fn a_link_to_another_node_is_not_blamed_for_the_time_before() {
        // Node 7 until 200 s, node 8 from 300 s on, and node 7 again from 500 s on.
        let mut memory = memory(&[(7, 100), (7, 200), (8, 300), (8, 400), (7, 500), (7, 600)]);
        let all = |memory: &LinkMemory| {
            [
                (110, 190),
                (250, 260),
                (310, 390),
                (450, 460),
                (550, 700),
                (190, 310),
                (110, 900),
            ]
            .map(|(from, to)| behind(memory, from, to))
        };
        let [seven, eight] = [7, 8].map(Behind::Node);
        let expected = [
            seven,
            seven,
            eight,
            eight,
            seven,
            Behind::Several,
            Behind::Several,
        ];
        assert_eq!(all(&memory), expected);
        // What workers still have of a flow that was there before says nothing new.
        memory.see((1, 5), 7, 590 * SECOND);
        memory.see((1, 5), 8, 399 * SECOND);
        assert_eq!(all(&memory), expected);
        // A later look at what was before.
        memory.see((1, 5), 8, 420 * SECOND);
        assert_eq!(all(&memory), expected);
    }

    #[test]
    fn a_clock_that_was_ahead_hides_no_link() {
        let mut memory = memory(&[(7, 100_000), (7, 100), (7, 200)]);
        assert_eq!(behind(&memory, 150, 160), Behind::Node(7));
        assert_eq!(behind(&memory, 50, 60), Behind::Unknown);
        memory.see((1, 5), 8, 300 * SECOND);
        assert_eq!(
            [behind(&memory, 150, 160), behind(&memory, 310, 320)],
            [7, 8].map(Behind::Node)
        );
        assert_eq!(behind(&memory, 100_100, 100_200), Behind::Node(7));
    }

    #[test]
    fn an_interface_with_several_nodes_behind_it_is_no_link() {
        let seen: Vec<_> = (0..50)
            .flat_map(|n| [(7, 100 + n * 10), (8, 101 + n * 10)])
            .collect();
        let memory = memory(&seen);
        assert_eq!(behind(&memory, 200, 201), Behind::Several);
        assert_eq!(behind(&memory, 900, 901), Behind::Several, "also when it is down");
        assert!(memory.ends[&(1, 5)].len() <= 3);
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest() {
        let mut memory = memory(&[]);
        for n in 0..100_u64 {
            memory.see((1, 5), n as u32, n * 2 * SECOND);
        }
        assert_eq!(memory.ends[&(1, 5)].len(), MAX_ENDS);
        assert_eq!(behind(&memory, 198, 198), Behind::Node(99));
        for n in 0..MAX_INTERFACES as u32 + 10 {
            memory.see((n, 9), 3, u64::from(n) * SECOND);
        }
        assert!(memory.ends.len() <= MAX_INTERFACES && memory.ends.len() > MAX_INTERFACES / 2);
        let last = MAX_INTERFACES as u32 + 9;
        assert_eq!(memory.behind(last, 9, u64::MAX, u64::MAX), Behind::Node(3));
        assert_eq!(memory.behind(0, 9, u64::MAX, u64::MAX), Behind::Unknown);
    }

    #[test]
    fn it_survives_a_restart() {
        let dir = Dir::new("known-links");
        let file = dir.path().join(FILE);
        let known = KnownLinks::open(Some(file.clone()));
        let see = |known: &KnownLinks, to, second| known.memory().see((1, 5), to, second * SECOND);
        let again = || behind(&KnownLinks::open(Some(file.clone())).memory(), 500, 501);
        see(&known, 7, 100);
        known.save(false);
        assert_eq!(again(), Behind::Node(7));
        // Not again at once, unless it is the end.
        see(&known, 8, 300);
        known.save(false);
        assert_eq!(again(), Behind::Node(7));
        known.save(true);
        assert_eq!(again(), Behind::Node(8));
        assert_eq!(dir.names(), [FILE]);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(again(), Behind::Unknown);
        // Without a directory it is not saved, and not forgotten either.
        std::fs::remove_dir_all(dir.path()).unwrap();
        see(&known, 9, 400);
        known.save(true);
        assert_eq!(behind(&known.memory(), 500, 501), Behind::Node(9));
        assert_eq!(known.memory().unsaved, Some(Unsaved::Node));
        assert!(std::fs::create_dir_all(dir.path()).is_ok());
        known.save(true);
        assert_eq!(again(), Behind::Node(9));
    }
}
