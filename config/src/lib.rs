//! The configuration of hopwise: a TOML file, declared section by section in `sections.rs` and in the crates of the roles, and
//! read and validated in one step, so that all other code gets a valid [`Settings`].

#![forbid(unsafe_code)]

pub mod build;
pub mod check;
pub mod console;
#[cfg(test)]
mod dta_example_tests;
mod folder;
mod profiles;
pub mod sections;
mod settings;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::settings::Settings;
use ::settings::{
    listen::Listen,
    read::{self, ConfigError},
    setting::{Setting, tables},
    show,
};
use collect_role::settings::CollectSettings;
use export_role::{role::Exports, settings::ExportSettings};

use manage_role::program::{Configuration, Detection};
use runtime::{control::IntentDetection, host};
use terminal::CliError;

const REFERENCE_HEAD: &str = "# Configuration reference

<!-- Made from the source; do not edit. To accept a change: make docs -->

The file is TOML. Every key has a default, so an empty file, or no file, is valid. Unknown keys are refused.
`hopwise check -c FILE` reports errors, and `hopwise check -c FILE --dump` prints the effective configuration. Send SIGHUP, or
`POST /api/v1/config/reload`, to apply a changed file without losing state. A key that cannot change while running keeps its
value; the log and the response name it.

Durations are numbers with a unit: `ns`, `us`, `ms`, `s`, `m`, `h`, `d`. Sizes are numbers with `B`, `KiB`, `MiB`, `GiB`, `TiB`.
";

impl Settings {
    /// Reads the settings from a file, or returns the defaults if there is none.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; the message names each line.
    pub fn load(file: Option<&Path>) -> Result<Self, CliError> {
        let Some(path) = file else {
            return Ok(Self::default());
        };
        let text = read::file(path).map_err(|error| {
            let remedy = "name a readable TOML file with -c, or leave -c out to use the defaults";
            CliError::io(format!("cannot read {}", path.display()), error, remedy)
        })?;
        let mut settings =
            Self::parse(&text, &path.to_string_lossy()).map_err(|error| CliError::new(error.to_string()))?;
        settings.add_intents(path)?;
        Ok(settings)
    }

    /// Adds the intents of the manager's folder to those in `file`.
    fn add_intents(&mut self, file: &Path) -> Result<(), CliError> {
        let Some(folder) = self.manager.as_mut().and_then(|manager| manager.intents.take()) else {
            return Ok(());
        };
        let file_name = file.display().to_string();
        let names = self
            .intents
            .iter()
            .map(|intent| {
                let written = intent.show().to_written();
                let name = written["name"].as_str().unwrap_or_default();
                (name.to_owned(), file_name.clone())
            })
            .collect();
        let collects = self.collects();
        self.intents.extend(folder::intents(&folder, names, collects)?);
        Ok(())
    }

    /// Parses the settings in `text`. `file` is its name in messages.
    ///
    /// # Errors
    /// All problems of the file, each with its line.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let mut reader = read::Reader::new(text);
        let mut settings = Self::default();
        if let Some(root) = reader.parse(tables::<Self>) {
            if let Some(read) = Self::read(&root, &mut reader) {
                settings = read;
            }
            reader.end_values(&root);
            // A file that configures only other roles runs no collector.
            let has_other_role = settings.switch.is_some()
                || settings.translator.is_some()
                || settings.aggregator.is_some()
                || settings.reporter.is_some()
                || settings.outlet.is_some()
                || settings.console.is_some();
            if has_other_role && !read::is_written(&root, &["collector"]) {
                settings.collector.enabled = Some(false);
            }
            check::check(&settings, text, &root, &mut reader);
            // A device's inventory name is its node's name, unless `[nodes]` gives another.
            for device in ::manager::inventory::from_settings(&settings.inventory).devices() {
                settings
                    .nodes
                    .entry(device.node)
                    .or_insert_with(|| model::NodeEntry::named(device.name.clone()));
            }
            settings.add_profiles(|driver, device, message| {
                reader.refuse(read::span_of(&root, &["manager", driver, device, "map"]), message);
            });
        }
        reader.finish(file).map(|()| settings)
    }

    /// Returns the settings of the collector's role.
    pub fn collect(&self) -> CollectSettings {
        CollectSettings {
            collector: self.collector.clone(),
            profiles: self.profiles.clone(),
            sources: self.sources.clone(),
            nodes: self.nodes.clone(),
            thresholds: self.thresholds.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Returns true if the program runs a collector.
    pub fn collects(&self) -> bool {
        self.collector.enabled.unwrap_or(true)
    }

    /// Returns the manager's part of the configuration, or `None` if there is no manager.
    pub fn managed(self: &Arc<Self>) -> Option<Arc<Configuration>> {
        let detection: Arc<dyn Detection> = Arc::<Self>::clone(self);
        Some(Arc::new(Configuration {
            manager: self.manager.clone()?,
            inventory: self.inventory.clone(),
            intents: self.intents.clone(),
            listens: self.collects().then(|| self.collector.listen.clone()),
            detection,
        }))
    }

    /// Returns the exports with the settings of other sections that they need.
    pub fn all_exports(&self) -> Exports<'_> {
        Exports {
            exports: &self.exports,
            outlet: self.outlet.as_ref(),
            memory: self.export.memory,
            store: self.store_directory(),
            collector: self.collector_name(),
        }
    }

    /// Returns true if the program serves the web UI.
    pub fn has_pages(&self) -> bool {
        self.ui.enabled && (self.collects() || self.console.is_some())
    }

    /// Returns these settings with all changes in `new` that can be applied at run time, and the names of changed settings that
    /// need a restart.
    pub fn reload(&self, new: Self) -> (Self, Vec<String>) {
        let mut unchanged = Vec::new();
        let mut merged = new;
        merged.keep_fixed(self, false, "", &mut unchanged);
        (merged, unchanged)
    }

    /// Checks that the API requires a token if it is reachable from other hosts. For settings that were changed after they were
    /// read.
    ///
    /// # Errors
    /// The API needs a token; the message says what to do.
    pub fn check_protection(&self) -> Result<(), String> {
        if self.api.listen.ip().is_loopback() || self.api.needs_token() {
            return Ok(());
        }
        Err(format!(
            "{} can be reached from other machines; add token = \"...\" (openssl rand -hex 24), or listen on 127.0.0.1",
            self.api.listen
        ))
    }

    /// Returns a warning for each role with listeners to which anyone can send reports.
    pub fn open_listeners(&self) -> Vec<String> {
        let collector = &self.collector;
        let open = collector
            .listen
            .iter()
            .filter(|listen| !listen.is_loopback() && !collector.is_restricted(listen));
        let collector = open.filter(|_| self.collects()).map(ToString::to_string);
        let aggregator = self
            .aggregator
            .iter()
            .filter(|role| role.allow.is_empty() && !role.listen.is_loopback());
        let aggregator = aggregator.map(|role| role.listen.to_string());
        let translator = self
            .translator
            .iter()
            .filter(|role| role.allow.is_empty())
            .flat_map(|role| role.listens());
        let translator = translator.filter(|address| !address.ip().to_canonical().is_loopback());
        let roles: [(Vec<String>, &str); 3] = [
            (collector.collect(), "[[collector.allow]]"),
            (aggregator.collect(), "[aggregator] allow"),
            (
                translator.map(|address| address.to_string()).collect(),
                "[translator] allow",
            ),
        ];
        roles
            .into_iter()
            .filter(|(listens, _)| !listens.is_empty())
            .map(|(listens, key)| {
                let listens = listens.join(" and ");
                format!(
                    "everyone who reaches {listens} can send reports, which are not authenticated; name the senders in {key}"
                )
            })
            .collect()
    }

    /// Formats the effective settings as a TOML file, without secrets.
    pub fn to_toml(&self) -> String {
        self.show().to_toml()
    }

    /// Converts the effective settings to JSON, without secrets.
    pub fn to_json(&self) -> serde_json::Value {
        self.show().to_json()
    }

    /// Returns the export with this name. `file` is only used in the error message.
    ///
    /// # Errors
    /// No export has this name.
    pub fn export(&self, name: &str, file: &Path) -> Result<&ExportSettings, CliError> {
        self.exports.get(name).ok_or_else(|| {
            CliError::new(format!(
                "there is no [exports.{name}] in {}; write the name of one that is there",
                file.display()
            ))
        })
    }

    /// Returns the name of this collector in exported records: the configured one, or else the machine's.
    pub fn collector_name(&self) -> String {
        let names = [
            self.collector.name.clone().unwrap_or_default(),
            host::name(),
            "hopwise".to_owned(),
        ];
        names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    }

    /// Returns the directory of the store: the configured one, or else `$STATE_DIRECTORY` (systemd), or else
    /// `hopwise-data` in the current directory.
    pub fn store_directory(&self) -> PathBuf {
        let configured = self.store.dir.clone();
        configured
            .or_else(|| {
                std::env::var_os("STATE_DIRECTORY")
                    .filter(|dir| !dir.is_empty())
                    .map(PathBuf::from)
            })
            .unwrap_or_else(|| PathBuf::from("hopwise-data"))
    }
}

impl Detection for Settings {
    fn check(&self, asked: &IntentDetection) -> Result<(), String> {
        self.collect().detection(asked, 0).map(drop)
    }
}

/// Command-line settings, which override the file, also after a reload.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Instead of `[collector] listen`, unless empty.
    pub listen: Vec<Listen>,
    /// Instead of `[api] listen`.
    pub api: Option<SocketAddr>,
    /// Instead of `[store] dir`.
    pub store: Option<PathBuf>,
    /// Options of `hopwise console`, instead of keys of `[console]`.
    pub console: Option<ConsoleOverrides>,
}

/// Overrides of `hopwise console`.
#[derive(Clone, Debug, Default)]
pub struct ConsoleOverrides {
    /// Instead of `[console] url`.
    pub url: Option<String>,
    /// Instead of `[console] database`.
    pub database: Option<String>,
    /// Instead of `[console] user`.
    pub user: Option<String>,
    /// Instead of `[console] password_file`.
    pub password_file: Option<PathBuf>,
    /// Instead of `[console] ca`.
    pub ca: Option<PathBuf>,
}

impl ConsoleOverrides {
    fn apply(&self, settings: &mut Settings) -> Result<(), String> {
        let console = settings.console.get_or_insert_default();
        console.url = self.url.clone().unwrap_or_else(|| console.url.clone());
        console.database = self.database.clone().unwrap_or_else(|| console.database.clone());
        console.user = self.user.clone().or(console.user.take());
        console.password_file = self.password_file.clone().or(console.password_file.take());
        console.ca = self.ca.clone().or(console.ca.take());
        if console.url.is_empty() {
            return Err("the address of ClickHouse is missing; write [console] url = \"http://127.0.0.1:8123\" into the file of -c, or use --url".to_owned());
        }
        if let Some((key, message)) = console.problems().into_iter().next() {
            return Err(format!("{key}: {message}"));
        }
        settings.collector.enabled.get_or_insert(false);
        match settings.collects() {
            true => Err("a console has no inputs; use a file without [collector]".to_owned()),
            false => Ok(()),
        }
    }
}

impl Overrides {
    /// Applies these overrides to `settings`.
    ///
    /// # Errors
    /// The settings and the overrides conflict, or the API needs a token; the error is a message.
    pub fn apply(&self, mut settings: Settings) -> Result<Settings, String> {
        if !self.listen.is_empty() {
            settings.collector.listen.clone_from(&self.listen);
        }
        let collector = &settings.collector;
        if let Some(unknown) = collector
            .allow
            .iter()
            .flat_map(|entry| &entry.listen)
            .find(|listen| !collector.listen.contains(listen))
        {
            return Err(format!(
                "[[collector.allow]] restricts {unknown}, which is not listened on; correct the command line, or the entry"
            ));
        }
        settings.api.listen = self.api.unwrap_or(settings.api.listen);
        settings.store.dir = self.store.clone().or(settings.store.dir);
        if let Some(console) = &self.console {
            console.apply(&mut settings)?;
        }
        settings.check_protection().map(|()| settings)
    }
}

/// Renders the reference page of the configuration, in Markdown.
pub fn reference() -> String {
    let mut chapters = Vec::new();
    Settings::explain("", &mut chapters);
    chapters.remove(0); // the file itself: its keys are the tables that follow
    show::page(REFERENCE_HEAD, &chapters)
}

#[cfg(test)]
mod tests;
