//! The functions of the program that the lab needs. The program passes them in, so that this crate does not depend on it.

use std::fmt::Debug;

use serde_json::Value;
use settings::{
    read::{Node, Reader},
    setting::Shown,
};
use terminal::CliError;

/// The program: its configuration and its API.
pub trait Program: Debug + Sync {
    /// Checks a whole configuration; `file` is its name in messages.
    ///
    /// # Errors
    /// Every problem, with its line.
    fn check(&self, config: &str, file: &str) -> Result<(), String>;

    /// Checks a table with the content of a configuration file, in a file with this text. Problems are recorded in `reader`.
    fn check_collector(&self, text: &str, node: &Node<'_>, reader: &mut Reader<'_>);

    /// Reads a `[[switch.watch]]` table, completed with the defaults. Problems are recorded in `reader`.
    fn read_watch(&self, node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Shown>;

    /// Checks the `[[intents]]` of a file. Problems are recorded in `reader`.
    fn check_intents(&self, root: &Node<'_>, reader: &mut Reader<'_>);

    /// The JSON that `GET /api/v1{path}` of the API at `url` returns.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    fn get(&self, url: &str, path: &str) -> Result<Value, CliError>;

    /// The JSON that `POST /api/v1{path}` of the API at `url` returns to an empty object.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    fn post(&self, url: &str, path: &str) -> Result<Value, CliError>;

    /// Whether the web page is built into this program.
    fn has_web_page(&self) -> bool;
}

/// Stub for tests without the program: accepts every configuration, and no process answers.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Lenient;

#[cfg(test)]
impl Program for Lenient {
    fn check(&self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn check_collector(&self, _: &str, _: &Node<'_>, _: &mut Reader<'_>) {}

    fn read_watch(&self, node: &Node<'_>, _: &mut Reader<'_>) -> Option<Shown> {
        Some(crate::file::shown(node))
    }

    fn check_intents(&self, _: &Node<'_>, _: &mut Reader<'_>) {}

    fn get(&self, url: &str, _: &str) -> Result<Value, CliError> {
        Err(CliError::new(format!("{url} does not answer")))
    }

    fn post(&self, url: &str, _: &str) -> Result<Value, CliError> {
        Err(CliError::new(format!("{url} does not answer")))
    }

    fn has_web_page(&self) -> bool {
        false
    }
}
