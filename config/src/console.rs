//! Settings of a console (`[console]`): the ClickHouse tables to which a fleet of collectors exports, and from which the
//! console serves the API and UI.

use std::{collections::BTreeMap, path::PathBuf};

use export::sink::clickhouse::ClickHouse;
use settings::section;

use export_role::settings::{ExportKind, ExportSettings};
use net::destination::Destination;

/// Maximum number of collector names in pairs: every SQL statement contains them.
const MAX_COLLECTORS: usize = 256;

section! {
    /// A console serves the API and the UI from the tables that collectors export to ClickHouse (`[exports.NAME]`, `kind =
    /// "clickhouse"`). It has no inputs and no store: a file with `[console]` runs no collector. See [the
    /// how-to](../how-to/fleet.md).
    pub struct ConsoleSettings("[console]") {
        /// Address of ClickHouse: `http://HOST:PORT` or `https://HOST:PORT`.
        pub url: String = String::new(),
        /// Database of the tables.
        pub database: String = "hopwise".to_owned(),
        /// Prefix of the table names, as in the exports.
        pub prefix: String = String::new(),
        /// User name. Not set: none is sent.
        pub user: Option<String> = None,
        /// File with the user's password in its first line.
        pub password_file: Option<PathBuf> = None,
        /// File with a bearer token in its first line, instead of user and password.
        pub token_file: Option<PathBuf> = None,
        /// PEM file with the certificate authorities to trust for TLS; those of the system are not trusted.
        pub ca: Option<PathBuf> = None,
        /// PEM file with a client certificate, if the server requires one.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// Send password or token without encryption, too, to other hosts. Anyone who can read the network can then use them.
        pub unencrypted: bool = false,
        /// Collectors that receive the same reports, by their names (`[collector] name`): `[["c1", "c2"]]`. Of two rollups of such
        /// collectors with one key and time, the one with more values counts; rollups of all other collectors are added up.
        pub pairs: Vec<Vec<String>> = Vec::new(),
        /// Addresses of the pages of collectors, by their names: `{ c1 = "https://c1.example.org:8080" }`. The console's pages link
        /// to them for data that is not in ClickHouse, such as recordings, and to acknowledge alerts.
        [live] pub collectors: BTreeMap<String, String> = BTreeMap::new(),
    }
}

/// A settings key and the description of its problem.
type KeyProblem = (&'static str, String);

impl ConsoleSettings {
    /// Returns the settings of an export to the same ClickHouse server, to reuse its checks.
    fn export(&self) -> ExportSettings {
        ExportSettings {
            kind: Some(ExportKind::ClickHouse),
            url: self.url.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            token_file: self.token_file.clone(),
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            unencrypted: self.unencrypted,
            ..ExportSettings::default()
        }
    }

    /// Returns the destination of requests, with credentials and certificates. Reads the files that hold them.
    ///
    /// # Errors
    /// Returns the key at fault and a message that says how to correct it.
    pub fn destination(&self) -> Result<Destination, KeyProblem> {
        if self.url.is_empty() {
            let message =
                "the address of ClickHouse is missing; write url = \"http://127.0.0.1:8123\" or the like";
            return Err(("url", message.to_owned()));
        }
        self.export().destination()
    }

    /// Returns the table names from the database and the prefix.
    ///
    /// # Errors
    /// Returns the key at fault and a message that says how to correct it.
    pub fn tables(&self) -> Result<ClickHouse, KeyProblem> {
        ClickHouse::new(&self.database, &self.prefix, 0).map_err(|error| ("database", error))
    }

    /// Returns the collectors in pairs, each with the first name of its pair, which represents the pair.
    pub fn pair_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        for pair in &self.pairs {
            let first = pair.first().cloned().unwrap_or_default();
            names.extend(pair.iter().map(|name| (name.clone(), first.clone())));
        }
        names
    }

    fn collector_problem(&self) -> Option<String> {
        if self.collectors.len() > MAX_COLLECTORS {
            return Some(format!("at most {MAX_COLLECTORS} addresses; leave some out"));
        }
        self.collectors
            .iter()
            .find_map(|(name, url)| match (is_name(name), is_address(url)) {
                (false, _) => Some(format!(
                    "invalid collector name {name:?}; write letters, digits, -, _ and ."
                )),
                (true, false) => Some(format!(
                    "the address of {name} is not a URL; write one such as \"https://c1.example.org:8080\""
                )),
                (true, true) => None,
            })
    }

    /// Returns every problem of these settings, with its key.
    pub fn problems(&self) -> Vec<KeyProblem> {
        let mut problems: Vec<KeyProblem> = [self.destination().err(), self.tables().err()]
            .into_iter()
            .flatten()
            .collect();
        let mut count = BTreeMap::new();
        for (name, _) in self.pair_names() {
            *count.entry(name).or_insert(0) += 1;
        }
        if let Some(name) = count.keys().find(|name| !is_name(name)) {
            let message = format!("invalid collector name {name:?}; write letters, digits, -, _ and .");
            problems.push(("pairs", message));
        }
        if let Some((name, _)) = count.iter().find(|(_, count)| **count > 1) {
            problems.push(("pairs", format!("{name} is listed twice; leave it in one pair")));
        }
        if self.pairs.iter().any(|pair| pair.len() < 2) {
            problems.push((
                "pairs",
                "a pair has two names or more; write [[\"c1\", \"c2\"]]".to_owned(),
            ));
        }
        if count.len() > MAX_COLLECTORS {
            problems.push(("pairs", format!("at most {MAX_COLLECTORS} names; leave some out")));
        }
        problems.extend(self.collector_problem().map(|message| ("collectors", message)));
        problems
    }
}

/// Returns true if this is a valid collector name: 1 to 255 letters, digits, `-`, `_` and `.`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Returns true if this is a valid URL of a collector. Everyone who may read the pages gets it, so user and password are
/// rejected.
fn is_address(url: &str) -> bool {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return false;
    };
    let has_user = rest.split('/').next().is_some_and(|host| host.contains('@'));
    let is_plain = rest
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"#?\"<>".contains(&byte));
    is_plain && !has_user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_names_its_key_and_says_what_to_do() {
        let problems = |change: &dyn Fn(&mut ConsoleSettings)| {
            let mut settings = ConsoleSettings {
                url: "http://127.0.0.1:8123".to_owned(),
                ..ConsoleSettings::default()
            };
            change(&mut settings);
            settings.problems()
        };
        let pair = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
        let at = |name: &str, url: &str| [(name.to_owned(), url.to_owned())].into();
        assert_eq!(problems(&|settings| settings.pairs = pair(&["c1", "c2"])), []);
        assert_eq!(
            problems(&|settings| settings.collectors = at("c1", "https://c1.example.org:8080/x")),
            []
        );
        for (change, key, words) in [
            (
                &|settings: &mut ConsoleSettings| settings.url.clear() as _,
                "url",
                "the address of ClickHouse is missing",
            ),
            (
                &|settings| settings.url = "clickhouse:8123".to_owned(),
                "url",
                "http",
            ),
            (
                &|settings| settings.database = "a b".to_owned(),
                "database",
                "invalid database or table name \"a b\"",
            ),
            (
                &|settings| settings.pairs = pair(&["c1"]),
                "pairs",
                "a pair has two names",
            ),
            (
                &|settings| settings.pairs = pair(&["c1", "c1"]),
                "pairs",
                "c1 is listed twice",
            ),
            (
                &|settings| settings.pairs = pair(&["c1", "c'2"]),
                "pairs",
                "invalid collector name \"c'2\"",
            ),
            (
                &|settings| settings.collectors = at("c1", "javascript:alert(1)"),
                "collectors",
                "the address of c1 is not a URL",
            ),
            (
                &|settings| settings.collectors = at("c1", "https://admin:secret@c1:8080"),
                "collectors",
                "the address of c1 is not a URL",
            ),
            (
                &|settings| settings.collectors = at("c1", "https://"),
                "collectors",
                "the address of c1 is not a URL",
            ),
            (
                &|settings| settings.collectors = at("c 1", "https://c1"),
                "collectors",
                "invalid collector name \"c 1\"",
            ),
        ] as [(&dyn Fn(&mut ConsoleSettings), &str, &str); 10]
        {
            let found = problems(change);
            assert!(
                matches!(&found[..], [(at, message)] if *at == key && message.contains(words)),
                "{key}: {found:?}"
            );
        }
    }

    #[test]
    fn each_collector_of_a_pair_stands_for_the_first() {
        let pairs = vec![
            vec!["b".to_owned(), "a".to_owned()],
            vec!["d".to_owned(), "c".to_owned()],
        ];
        let names = ConsoleSettings {
            pairs,
            ..ConsoleSettings::default()
        }
        .pair_names();
        let expected = [("b", "b"), ("a", "b"), ("d", "d"), ("c", "d")];
        assert_eq!(
            names,
            expected.map(|(name, first)| (name.to_owned(), first.to_owned()))
        );
    }
}
