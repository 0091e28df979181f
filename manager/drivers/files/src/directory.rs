//! Executes the manager's requests on a device's directory: reads and writes its files, with locking and atomic replacement.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use manager::device::{Answer, Change, Election, Etag, Request, Rules, State};
use sha2::{Digest, Sha256};

use crate::settings::{Confirm, Rendered, Settings};
use crate::text::{self, Content};

/// Name of the file that the manager writes.
pub const DESIRED: &str = "desired.txt";
/// Name of the copy of [`DESIRED`], made once the device has these rules.
pub const APPLIED: &str = "applied.txt";
/// Beginning of the header line that states the election.
const ELECTION_PREFIX: &str = "# election ";
/// Maximum length of a file, bytes; full tables fit.
const MAX_FILE: u64 = 4 << 20;
/// Maximum number of foreign lines that are shown.
const MAX_FOREIGN: usize = 1000;
/// Time that a request waits for the lock. It is shorter than the manager's time limit, so that the manager learns the reason.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1500);
/// Interval between attempts to get the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The directory of one device.
#[derive(Debug)]
pub struct Directory {
    settings: Settings,
    /// Election of this manager's last claim.
    claimed: Election,
    /// ETag of the files as this driver last read them.
    last_read: Etag,
}

/// The contents of both files. The ETag is a digest of both.
struct Files {
    etag: Etag,
    election: Election,
    desired: Option<Content>,
    applied: Option<Content>,
}

impl Directory {
    /// Creates the access to a directory, without reading it yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            claimed: Election::default(),
            last_read: Etag::default(),
        }
    }

    /// Executes a request of the manager and returns the answer.
    pub fn execute(&mut self, request: Request) -> Answer {
        let directory = &self.settings.directory;
        if !directory.is_dir() {
            return Answer::Unreachable(format!(
                "there is no directory {}; create it, or correct `address`",
                directory.display()
            ));
        }
        let answer = self.with_lock(|directory| directory.execute_locked(request));
        answer.unwrap_or_else(|error| {
            Answer::Unreachable(format!(
                "cannot use {}: {error}",
                self.settings.directory.display()
            ))
        })
    }

    /// Returns whether the files have changed since this driver last read them.
    pub fn has_changed(&mut self) -> bool {
        let Ok(files) = self.with_lock(|directory| directory.files()) else {
            return false;
        };
        let is_new = files.etag != self.last_read && self.last_read != Etag::default();
        self.last_read = files.etag;
        is_new
    }

    /// Runs `work` while holding the directory's lock, which excludes other processes.
    fn with_lock<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let path = self.settings.directory.join(".lock");
        let lock = File::options().create(true).append(true).open(path)?;
        let start = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_TIMEOUT => {
                    thread::sleep(LOCK_RETRY_INTERVAL)
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another process holds its lock for too long"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        // Dropping the file at the end releases the lock.
        work(self)
    }

    /// Executes a request under the lock. An election in the file above the request's fences it.
    fn execute_locked(&mut self, request: Request) -> io::Result<Answer> {
        let files = self.files()?;
        self.last_read = files.etag.clone();
        match request {
            Request::Claim(election) if election <= files.election => Ok(Answer::NotPrimary(files.election)),
            Request::Claim(election) => {
                // The claim itself changes no rule: only the header gets the new election.
                let Files { desired, applied, .. } = files;
                let content = desired.or_else(|| applied.clone()).unwrap_or_default();
                let rendered = match self.render_format(applied.as_ref(), &content) {
                    Ok(rendered) => rendered,
                    Err(reason) => {
                        let directory = self.settings.directory.display();
                        return Ok(Answer::Unreachable(format!(
                            "the form of this device cannot express what {directory}/{DESIRED} or {APPLIED} says; correct the file: {reason}"
                        )));
                    }
                };
                self.claimed = election;
                self.write(&content, rendered, election)?;
                Ok(Answer::Claimed)
            }
            Request::Read if files.election > self.claimed => Ok(Answer::NotPrimary(files.election)),
            Request::Read => Ok(self.state(files)),
            Request::Apply { election, .. } if election < files.election => {
                Ok(Answer::NotPrimary(files.election))
            }
            Request::Apply {
                election,
                etag,
                changes,
            } => {
                let is_current = election == files.election && etag == files.etag;
                let is_confirmed =
                    self.settings.confirm == Confirm::Written || files.desired == files.applied;
                let Some(desired) = files.desired else {
                    return Ok(Answer::Stale);
                };
                if !is_current || !is_confirmed {
                    return Ok(Answer::Stale);
                }
                let before = match self.settings.confirm {
                    Confirm::Applied => files.applied,
                    Confirm::Written => Some(desired.clone()),
                };
                let content = apply_changes(desired, changes);
                let rendered =
                    content.and_then(|content| Ok((self.render_format(before.as_ref(), &content)?, content)));
                match rendered {
                    Ok((rendered, content)) => {
                        self.write(&content, rendered, election)?;
                        Ok(Answer::Applied)
                    }
                    Err(reason) => Ok(Answer::Refused(reason)),
                }
            }
        }
    }

    /// Renders the additional files in the device's format, if it has one.
    fn render_format(&self, before: Option<&Content>, after: &Content) -> Result<Rendered, String> {
        let Some(format) = &self.settings.format else {
            return Ok(Rendered::new());
        };
        let nothing = Rules::new();
        format.render(before.map_or(&nothing, |before| &before.rules), &after.rules)
    }

    fn state(&self, files: Files) -> Answer {
        let Files {
            etag,
            desired,
            applied,
            ..
        } = files;
        let desired = desired.unwrap_or_default();
        let directory = self.settings.directory.display();
        if self.settings.confirm == Confirm::Applied && applied.as_ref() != Some(&desired) {
            let mismatch = match applied {
                Some(_) => "differs from it",
                None => "does not exist",
            };
            return Answer::Unconfirmed(format!(
                "{directory}/{DESIRED} is written, and {APPLIED} {mismatch}; copy it to {APPLIED} when the device has these rules"
            ));
        }
        let mut foreign = desired.foreign;
        foreign.truncate(MAX_FOREIGN);
        Answer::State(State {
            etag,
            rules: desired.rules,
            foreign,
            ..State::default()
        })
    }

    /// Reads both files and computes their ETag.
    fn files(&self) -> io::Result<Files> {
        let desired = self.load(DESIRED)?;
        let applied = self.load(APPLIED)?;
        let mut digest = Sha256::new();
        for text in [&desired, &applied] {
            // The length delimits each file's text in the digest.
            digest.update(
                text.as_ref()
                    .map_or(u64::MAX, |text| text.len() as u64)
                    .to_be_bytes(),
            );
            digest.update(text.as_deref().unwrap_or_default());
        }
        Ok(Files {
            etag: Etag(hex(&digest.finalize())),
            election: desired.as_deref().map(election).unwrap_or_default(),
            desired: desired.map(|text| Content::parse(&text)),
            applied: applied.map(|text| Content::parse(&text)),
        })
    }

    /// Returns the contents of a file, or `None` if it does not exist.
    fn load(&self, name: &str) -> io::Result<Option<String>> {
        match load(&self.settings.directory.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
        }
    }

    /// Replaces the desired rules durably: on return, they survive a power failure. `desired.txt` is written last, so that a
    /// reader of its new version finds the other files up to date.
    fn write(&mut self, content: &Content, rendered: Rendered, election: Election) -> io::Result<()> {
        let lines = content.render();
        let Settings {
            name,
            node,
            directory,
            confirm,
            ..
        } = &self.settings;
        let version = hex(&Sha256::digest(&lines));
        let instruction = match confirm {
            Confirm::Applied => {
                format!("Apply these rules to the device, then copy this file to {APPLIED}.")
            }
            Confirm::Written => "Apply these rules to the device.".to_owned(),
        };
        let Election { term, epoch } = election;
        let text = format!(
            "# Rules of {name} (node {node}), written by the manager of hopwise. {instruction}\n{ELECTION_PREFIX}{term}.{epoch}\n# version {version}\n\n{lines}"
        );
        for (file, text) in rendered
            .iter()
            .map(|(file, text)| (*file, text))
            .chain([(DESIRED, &text)])
        {
            let temp_file = directory.join(".desired.begun");
            let mut out = File::create(&temp_file)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            fs::rename(&temp_file, directory.join(file))?;
        }
        // The renamed directory entries must reach the disk, too.
        File::open(directory)?.sync_all()?;
        self.last_read = self.files()?.etag;
        Ok(())
    }
}

/// Applies changes to the content.
fn apply_changes(mut content: Content, changes: Vec<Change>) -> Result<Content, String> {
    for change in changes {
        match change {
            Change::Remove(rule) if !content.rules.remove(&rule) => {
                return Err(format!(
                    "there is no rule `{rule}` to remove; read the rules again"
                ));
            }
            Change::Remove(_) => {}
            Change::Add(rule) => {
                content.rules.insert(rule);
            }
        }
    }
    // A foreign line that parses as a rule only contradicted another line; this change settles it.
    content.foreign.retain(|line| text::parse_rule(line).is_err());
    // Check that the text parses back into the same rules.
    let parsed = Content::parse(&content.render());
    if parsed == content {
        return Ok(content);
    }
    let lost_rule = content
        .rules
        .difference(&parsed.rules)
        .next()
        .map(ToString::to_string)
        .unwrap_or_default();
    Err(format!(
        "`{lost_rule}` and another rule need the same entry; remove one"
    ))
}

/// Parses the election in the header of a file, or the lowest one if it has none.
pub(crate) fn election(text: &str) -> Election {
    let election = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .find_map(|line| {
            let (term, epoch) = line.strip_prefix(ELECTION_PREFIX)?.trim().split_once('.')?;
            Some(Election {
                term: term.parse().ok()?,
                epoch: epoch.parse().ok()?,
            })
        });
    election.unwrap_or_default()
}

fn load(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        let message = format!("it is longer than {} MiB", MAX_FILE >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Returns the first 16 bytes of a digest in hexadecimal, which suffice to distinguish versions.
fn hex(digest: &[u8]) -> String {
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
