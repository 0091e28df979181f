//! The functions of this program that `hopwise lab` needs: its configuration and its API.

use manager::intent::IntentSettings;
use serde_json::{Value, json};
use settings::{
    read::{Node, Reader},
    setting::{Setting, Shown},
};
use terminal::CliError;

use crate::api::pages;
use config::{Settings, check};
use manage_role::settings::check_intents;
use net::client::Client;
use switch_role::settings::WatchSettings;

/// This program.
#[derive(Debug)]
pub(crate) struct Program;

impl lab::Program for Program {
    fn check(&self, config: &str, file: &str) -> Result<(), String> {
        Settings::parse(config, file)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn check_collector(&self, text: &str, node: &Node<'_>, reader: &mut Reader<'_>) {
        if let Some(settings) = Settings::read(node, reader) {
            check::check(&settings, text, node, reader);
        }
    }

    fn read_watch(&self, node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Shown> {
        WatchSettings::read(node, reader).map(|watch| watch.show())
    }

    fn check_intents(&self, root: &Node<'_>, reader: &mut Reader<'_>) {
        let Some(node) = root.get_ref().get("intents") else {
            return;
        };
        if let Some(intents) = Vec::<IntentSettings>::read(node, reader) {
            check_intents(&intents, true, root, reader);
        }
    }

    fn get(&self, url: &str, path: &str) -> Result<Value, CliError> {
        Ok(Client::new(url, None)?.get(path)?)
    }

    fn post(&self, url: &str, path: &str) -> Result<Value, CliError> {
        Ok(Client::new(url, None)?.send("POST", path, &json!({}))?)
    }

    fn has_web_page(&self) -> bool {
        pages::are_built_in()
    }
}

#[cfg(test)]
mod tests {
    use settings::read::ConfigError;

    use super::*;

    /// A valid file, in which each case below changes something.
    const GOOD: &str = include_str!("../../lab/src/good.toml");

    /// `=== change` old `=== to` new `=== message` message, and again.
    const CASES: &str = include_str!("../../lab/src/bad_files.txt");

    fn parse(text: &str) -> Result<(), ConfigError> {
        lab::check(text, "lab.toml", &Program)
    }

    #[test]
    fn every_fault_is_refused_with_its_line_and_a_remedy() {
        assert_eq!(parse(GOOD), Ok(()));
        let cases: Vec<&str> = CASES.split("=== change\n").skip(1).collect();
        assert!(cases.len() >= 25);
        let mut all = String::new();
        for case in &cases {
            let (change, _) = case.split_once("=== message\n").unwrap();
            let (old, new) = change.split_once("=== to\n").unwrap();
            assert!(
                old.is_empty() || GOOD.contains(old),
                "{old:?} is not in the good file"
            );
            let text = if old.is_empty() {
                format!("{GOOD}{new}")
            } else {
                GOOD.replacen(old, new, 1)
            };
            let message = parse(&text).map_err(|error| error.to_string()).err();
            let message = message.unwrap_or_else(|| panic!("accepted: {new:?}"));
            all += &format!("=== change\n{change}=== message\n{message}\n");
        }
        testkit::compare_page("lab/src/bad_files.txt", &all);
    }

    #[test]
    fn the_examples_are_good() {
        for text in [
            include_str!("../../examples/lab/three-switches.toml"),
            include_str!("../../examples/lab/leaf-spine.toml"),
            include_str!("../../examples/lab/dta.toml"),
            include_str!("../../examples/lab/three-bmv2.toml"),
        ] {
            assert_eq!(parse(text), Ok(()));
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        // Truncated anywhere, or with any one byte replaced: no panic, and a refusal names a line.
        for cut in 0..GOOD.len() {
            if let Err(error) = parse(&GOOD[..cut]) {
                assert!(error.to_string().starts_with("lab.toml:"), "{error}");
            }
            for other in ["\"", "0", "-", "[", "9999999999999", "\n"] {
                let text = format!("{}{other}{}", &GOOD[..cut], GOOD.get(cut + 1..).unwrap_or(""));
                if let Err(error) = parse(&text) {
                    assert!(error.to_string().starts_with("lab.toml:"), "{error}");
                }
            }
        }
    }
}
