//! Events of rules, with the collectors that heard each.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{EventSelection, Remote};
use crate::question::EventQuestion;
use crate::{
    alerts::{Hearer, RuleEvent},
    sql::Failure,
};

impl Remote {
    pub(super) async fn heard_of_rules(&self, question: EventQuestion) -> Result<Vec<RuleEvent>, Failure> {
        let wanted = EventSelection::new(question.filter, question.condition);
        let found = self.latest_heard(&wanted, Instant::now() + self.limit).await?;
        // A few names are in very many events.
        let mut known: HashMap<String, Hearer> = HashMap::new();
        let mut events = Vec::with_capacity(found.len());
        for heard in found {
            let mut by = Vec::with_capacity(1 + heard.also.len());
            for name in std::iter::once(&heard.line.collector).chain(&heard.also) {
                if !known.contains_key(name) {
                    known.insert(name.clone(), self.hearer(name));
                }
                by.extend(known.get(name).cloned());
            }
            let row = heard.line.row();
            events.push(RuleEvent { row, by });
        }
        Ok(events)
    }

    fn hearer(&self, name: &str) -> Hearer {
        let pair = self.pairs.iter().find(|(one, _)| one == name);
        Hearer {
            pair: pair.map_or(name, |(_, pair)| pair).into(),
            name: name.into(),
        }
    }
}
