//! Explains a P4Runtime write request that a device refused: which entry, why, and what the operator can do.

use std::collections::BTreeMap;

use tonic::Code;

use crate::entry::{Entry, Key};
use crate::message::Error;
use crate::program::Program;
use crate::translate::Batch;

/// Maximum number of characters that are shown of the device's message.
const MAX_MESSAGE: usize = 300;

/// A write request that the device refused, with the context for an explanation.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) program: &'a Program,
    /// Tables that are too small for all entries, with a sentence about each.
    pub(crate) full: &'a BTreeMap<u32, String>,
    pub(crate) batch: &'a Batch,
}

impl RefusedRequest<'_> {
    /// Describes the first refused update and the reason. `errors` are the results of the updates, in their order.
    pub(crate) fn text(&self, reason: &str, errors: &[Error]) -> String {
        let entries = self.batch.iter().map(|(_, entry)| entry);
        let failed: Vec<(&Entry, &Error)> = entries
            .zip(errors)
            .filter(|(_, error)| error.canonical_code != 0)
            .collect();
        let Some((entry, error)) = failed.first() else {
            let first = self
                .batch
                .first()
                .map(|(_, entry)| self.program.describe(entry))
                .unwrap_or_default();
            return match self.batch.len() {
                1 => format!("it refused {first}: {reason}"),
                all => format!("it refused {all} entries, the first {first}: {reason}"),
            };
        };
        let table = match &entry.key {
            Key::Table { table, .. } => self.full.get(table),
            Key::Default(_) | Key::Clone(_) | Key::Group(_) => None,
        };
        let why = explain_code(error, table);
        let more = if failed.len() > 1 {
            format!(", and {} more", failed.len() - 1)
        } else {
            String::new()
        };
        format!("it refused {}: {why}{more}", self.program.describe(entry))
    }
}

/// Explains an error code. `full` is a sentence about a table that is too small, because not every device reports that: PI, and
/// therefore BMv2, answers UNKNOWN.
fn explain_code(error: &Error, full: Option<&String>) -> String {
    let code = Code::from_i32(error.canonical_code);
    let message: String = error.message.chars().take(MAX_MESSAGE).collect();
    let explanation = match code {
        Code::AlreadyExists => "it is there already; remove the entry of the other program",
        Code::NotFound => "it no longer exists; the manager reads the device again",
        Code::Unimplemented => {
            "the device does not support it; correct the pipeline map, or use another `mode`"
        }
        Code::InvalidArgument => {
            "the device does not accept its values; correct the pipeline map, or `ports` and `report` of the device"
        }
        Code::PermissionDenied => "the role may not change it; set another `role`",
        _ => match full {
            Some(full) => full,
            None if code == Code::ResourceExhausted => {
                "the table is full; use fewer intents, or wider prefixes"
            }
            None => code.description(),
        },
    };
    if message.is_empty() {
        explanation.to_owned()
    } else {
        format!("{explanation} ({message})")
    }
}
