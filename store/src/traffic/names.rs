//! Resolves the interned IDs of flows, paths and rules in one file during a scan.

use collector::event::Kind;
use detect::Metric;
use rusqlite::{Connection, OptionalExtension as _};
use wire::FlowKey;

use super::{EventGroup, MAX_CACHED};
use crate::blocks::{Class, Location, Values};
use crate::hasher::FastMap;
use crate::identity::FileIdentity;
use crate::intern::parse_path;
use crate::keys::{FlowKeyCache, Keys};

/// Cache of a file's flows, paths and rules by ID.
pub(super) struct Names<'a> {
    pub(super) conn: &'a Connection,
    known_keys: &'a FlowKeyCache,
    file: &'a FileIdentity,
    keys: Keys,
    /// Number of flows that were read one by one.
    single_reads: usize,
    flows: FastMap<i64, Option<FlowKey>>,
    paths: FastMap<i64, Vec<u32>>,
    rules: FastMap<i64, String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(
        conn: &'a Connection,
        known_keys: &'a FlowKeyCache,
        file: &'a FileIdentity,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            conn,
            known_keys,
            file,
            keys: known_keys.load(conn, file, 0)?,
            single_reads: 0,
            flows: FastMap::default(),
            paths: FastMap::default(),
            rules: FastMap::default(),
        })
    }

    /// Returns the arguments of [`Names::new`], to create another cache for the same file.
    pub(super) fn origin(&self) -> (&'a Connection, &'a FlowKeyCache, &'a FileIdentity) {
        (self.conn, self.known_keys, self.file)
    }

    /// Returns the flow with this ID, or `None` for 0.
    pub(super) fn flow(&mut self, number: i64) -> rusqlite::Result<Option<FlowKey>> {
        if number == 0 {
            return Ok(None);
        }
        if let Keys::Loaded(_) = self.keys {
            return self.keys.get(self.conn, number);
        }
        if let Some(flow) = self.flows.get(&number) {
            return Ok(*flow);
        }
        self.single_reads += 1;
        if self.single_reads.is_power_of_two() {
            // Once enough lookups have been made, loading all flows is faster.
            self.keys = self.known_keys.load(self.conn, self.file, self.single_reads)?;
        }
        let flow = self.keys.get(self.conn, number)?;
        if self.flows.len() >= MAX_CACHED {
            self.flows.clear();
        }
        self.flows.insert(number, flow);
        Ok(flow)
    }

    /// Returns the nodes of the path with this ID, or none for 0.
    pub(super) fn path(&mut self, number: i64) -> rusqlite::Result<&[u32]> {
        if number == 0 {
            return Ok(&[]);
        }
        if !self.paths.contains_key(&number) {
            if self.paths.len() >= MAX_CACHED {
                self.paths.clear();
            }
            let mut select = self
                .conn
                .prepare_cached("SELECT path FROM f0.path_text WHERE id = ?1")?;
            let text: Option<String> = select.query_row([number], |row| row.get(0)).optional()?;
            self.paths
                .insert(number, text.as_deref().map(parse_path).unwrap_or_default());
        }
        Ok(self.paths.get(&number).map_or(&[], Vec::as_slice))
    }

    /// Returns the rule with this ID, or `None` for 0.
    pub(super) fn rule(&mut self, number: i64) -> rusqlite::Result<Option<String>> {
        if number == 0 {
            return Ok(None);
        }
        if let Some(rule) = self.rules.get(&number) {
            return Ok(Some(rule.clone()));
        }
        let mut select = self
            .conn
            .prepare_cached("SELECT rule FROM f0.rule_text WHERE id = ?1")?;
        let rule: String = select
            .query_row([number], |row| row.get(0))
            .optional()?
            .unwrap_or_default();
        self.rules.insert(number, rule.clone());
        Ok(Some(rule))
    }

    /// Returns the event group with these parts. `flow` and `path` are IDs.
    pub(super) fn group(
        &mut self,
        class: &Class,
        values: Values,
        location: Location,
        flow: i64,
        path: i64,
    ) -> rusqlite::Result<EventGroup> {
        Ok(EventGroup {
            kind: Kind::ALL.get(usize::from(class.kind)).copied(),
            metric: class
                .metric
                .and_then(|metric| Metric::ALL.get(usize::from(metric)).copied()),
            flow: self.flow(flow)?,
            path: self.path(path)?.to_vec(),
            node: location.node,
            interface: location.interface,
            queue: location.queue,
            rule: self.rule(class.rule.into())?,
            reason: class.reason,
            value: values.value,
            first: values.first.map(|first| {
                let hop = first.hop.and_then(|hop| u32::try_from(hop).ok());
                (first.flow, hop.into_iter().collect())
            }),
        })
    }
}
