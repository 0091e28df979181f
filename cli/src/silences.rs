//! The silences of alerts, as exports read them.

use std::sync::Arc;

use export::record::Alert;
use export_role::role::Silences;
use history::alerts::Notes;

/// The silences among the notes about alerts.
#[derive(Clone, Debug)]
pub struct NotedSilences(pub Arc<Notes>);

impl Silences for NotedSilences {
    fn is_silenced(&self, began: &Alert) -> bool {
        self.0.is_silenced(began)
    }
}
