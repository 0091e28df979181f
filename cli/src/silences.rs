//! Lets exports check whether an alert is silenced, from the notes (silences and acknowledgements) in the store.

use std::sync::Arc;

use export::record::Alert;
use export_role::role::Silences;
use history::alerts::Notes;

/// Silences among the notes about alerts.
#[derive(Clone, Debug)]
pub struct NotedSilences(pub Arc<Notes>);

impl Silences for NotedSilences {
    fn is_silenced(&self, began: &Alert) -> bool {
        self.0.is_silenced(began)
    }
}
