//! Rule events from ClickHouse, with the collectors that stored each.

use std::collections::HashMap;

use tokio::time::Instant;

use super::Remote;
use crate::query::EventQuery;
use crate::{
    alerts::{AlertSource, RuleEvent},
    sql::Failure,
};

impl Remote {
    pub(super) async fn rule_events_with_sources(
        &self,
        query: EventQuery,
    ) -> Result<Vec<RuleEvent>, Failure> {
        let until = Instant::now() + self.limit;
        let stored = self.latest_with_collectors(&query.into(), until).await?;
        // Few distinct names occur in very many events, so their sources are cached.
        let mut cached_sources: HashMap<String, AlertSource> = HashMap::new();
        let mut events = Vec::with_capacity(stored.len());
        for event in stored {
            let mut sources = Vec::with_capacity(1 + event.other_collectors.len());
            for name in std::iter::once(&event.line.collector).chain(&event.other_collectors) {
                if !cached_sources.contains_key(name) {
                    cached_sources.insert(name.clone(), self.alert_source(name));
                }
                sources.extend(cached_sources.get(name).cloned());
            }
            let row = event.line.row();
            events.push(RuleEvent { row, sources });
        }
        Ok(events)
    }

    fn alert_source(&self, name: &str) -> AlertSource {
        let pair = self.pairs.iter().find(|(collector, _)| collector == name);
        AlertSource {
            group: pair.map_or(name, |(_, group)| group).into(),
            name: name.into(),
        }
    }
}
