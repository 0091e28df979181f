//! Events of rules, with the collectors that heard each.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{Remote, Wanted};
use crate::question::EventQuestion;
use crate::{
    alerts::{Hearer, RuleEvent},
    sql::Failure,
};

impl Remote {
    pub(super) async fn heard_of_rules(&self, question: EventQuestion) -> Result<Vec<RuleEvent>, Failure> {
        let wanted = Wanted {
            condition: question.condition,
            ..Wanted::of(question.filter)
        };
        let found = self.latest_heard(&wanted, Instant::now() + self.limit).await?;
        let mut known: HashMap<String, Hearer> = HashMap::new();
        let mut hearer = |name: &str| match known.get(name) {
            Some(hearer) => hearer.clone(),
            None => {
                let pair = self.pairs.iter().find(|(one, _)| one == name);
                let pair = pair.map_or(name, |(_, pair)| pair);
                let hearer = Hearer {
                    pair: pair.into(),
                    name: name.into(),
                };
                known.insert(name.to_owned(), hearer.clone());
                hearer
            }
        };
        let heard = found.into_iter().map(|heard| {
            let names = std::iter::once(&heard.line.collector).chain(&heard.also);
            let by = names.map(|name| hearer(name)).collect();
            RuleEvent {
                by,
                row: heard.line.row(),
            }
        });
        Ok(heard.collect())
    }
}
