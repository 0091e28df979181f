//! Queries of a store's files for `hopwise events` and `hopwise path` with `--dir`; the results have the types of the API.

use std::{io::ErrorKind, path::Path, time::Duration};

use collector::Kind;
use detect::Metric;
use store::{EventFilter, EventRow, QueryOptions, Reader, Value, facts};

use super::event_filter::Filter;
use super::remote::parse_path;
use terminal::CliError;
use view::{EventView, Flow, FlowDetail, FlowView, HopView, Names};

/// Opens the store in `dir` for reading.
pub(super) fn open(dir: &Path) -> Result<Reader, CliError> {
    Reader::open(dir).map_err(|error| match error {
        store::Error::Io(_, error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => CliError::new(format!(
                "there is no store in {}; name the directory of one with --dir",
                dir.display()
            )),
            _ => CliError::io(
                format_args!("cannot read the store in {}", dir.display()),
                error,
                "check the directory's owner and mode",
            ),
        },
        error => CliError::new(error.to_string()),
    })
}

/// Reads the latest events that pass the filter, oldest first, and prints notes about damaged files.
pub(super) fn events(
    dir: &Path,
    filter: &Filter,
    limit: u32,
    names: &Names,
) -> Result<Vec<EventView>, CliError> {
    let condition = filter.condition(names)?;
    let reader = open(dir)?;
    let flow = match filter.flow.as_deref().map(str::parse) {
        Some(Err(error)) => return Err(CliError::new(format!("--flow: {error}"))),
        Some(Ok(flow)) => Some(flow),
        None => None,
    };
    let event_filter = EventFilter {
        kind: Kind::ALL
            .into_iter()
            .find(|kind| Some(kind.name()) == filter.kind.as_deref()),
        node: filter.node_id,
        metric: filter.metric.as_deref().and_then(Metric::from_name),
        flow,
        from: filter.from,
        before: filter.to.map(|to| to.saturating_add(1)),
        ..EventFilter::default()
    };
    let lists_unchanged = filter.kind.is_some() || filter.names_unchanged();
    let limit = limit as usize;
    let mut found_rows = Vec::new();
    let mut after = None;
    loop {
        let filter = EventFilter {
            after,
            limit: limit - found_rows.len(),
            ..event_filter
        };
        let (rows, cursor) = reader
            .events_where(&filter, |row: &EventRow| {
                let is_listed = lists_unchanged || row.event.kind != Kind::Latest;
                is_listed
                    && condition
                        .as_ref()
                        .is_none_or(|condition| condition.matches(&facts::from_row(row)))
            })
            .map_err(|error| CliError::new(error.message))?;
        found_rows.extend(rows);
        after = cursor;
        if after.is_none() || found_rows.len() >= limit {
            break;
        }
    }
    reader.notes().iter().for_each(terminal::note);
    let views = found_rows
        .iter()
        .rev()
        .map(|row| EventView::from_row(row, names.drop_reasons()));
    Ok(views.collect())
}

/// Reads flows that meet an SQL condition, latest first. The condition refers to `text` as parameter `?1`.
fn flow_rows(dir: &Path, condition: &str, text: &str, limit: u32) -> Result<Vec<Vec<Value>>, CliError> {
    let sql = format!(
        "SELECT flow, src, dst, sport, dport, proto, path, flow_latency, basis, reports, first_seen, last_seen \
         FROM flows WHERE {condition} ORDER BY last_seen DESC LIMIT {limit}"
    );
    rows(dir, &sql, vec![Value::Text(text.to_string())], limit)
}

/// Reads the flows whose text equals or, if there is none, contains `text`, latest first. A single flow comes with its hops.
pub(super) fn flows(dir: &Path, text: &str, limit: u32) -> Result<Vec<FlowDetail>, CliError> {
    let mut rows = flow_rows(dir, "flow = ?1", text, limit)?;
    if rows.is_empty() {
        rows = flow_rows(dir, "instr(flow, ?1) > 0", text, limit)?;
    }
    let mut flows: Vec<FlowDetail> = rows.into_iter().filter_map(flow).collect();
    if let [flow] = &mut flows[..] {
        flow.hops = hops(dir, &flow.flow)?;
    }
    Ok(flows)
}

fn flow(row: Vec<Value>) -> Option<FlowDetail> {
    let mut row = Row(row.into_iter());
    let text = row.text()?;
    let flow = row.flow()?;
    let path = parse_path(&row.text().unwrap_or_default());
    let flow = FlowView {
        id: format!("{:016x}", flow.key().id()),
        flow,
        text,
        path_length: u16::try_from(path.len()).unwrap_or(u16::MAX),
        path,
        flow_latency: row.number(),
        latencies: None,
        basis: row.text().unwrap_or_default().into(),
        path_basis: None,
        incomplete: None,
        truncated: false,
        reports: row.number()?,
        first_seen: row.number()?,
        last_seen: row.number()?,
    };
    Some(FlowDetail {
        flow,
        ..FlowDetail::default()
    })
}

/// Reads the latest values of each node on the flow's path: the flow's latency there, and the latest occupancy of one of the
/// node's queues, whichever flow reported it.
fn hops(dir: &Path, flow: &FlowView) -> Result<Vec<HopView>, CliError> {
    let query = "SELECT node, value, path, hop_latencies FROM events WHERE flow = ?1 \
                 AND (metric = 'hop_latency' OR hop_latencies IS NOT NULL) ORDER BY ts DESC LIMIT 1000";
    // (node, ns), latest first: changes of one node's latency, and the latencies of all nodes in events of a new path.
    let mut latencies: Vec<(u32, u64)> = Vec::new();
    for row in rows(dir, query, vec![Value::Text(flow.text.clone())], 1000)? {
        let mut row = Row(row.into_iter());
        let node = row.number();
        let value = row.number();
        let path = row.text().unwrap_or_default();
        let values = row.text().unwrap_or_default();
        let path_latencies = parse_path(&path).into_iter().zip(parse_path(&values));
        latencies.extend(node.zip(value));
        latencies.extend(path_latencies.filter_map(|(node, value)| Some((node?, value?.into()))));
    }
    let mut hops = Vec::new();
    for node in &flow.path {
        let mut hop = HopView {
            node: *node,
            ..HopView::default()
        };
        if let Some(node) = *node {
            hop.hop_latency = latencies
                .iter()
                .find(|(other, _)| *other == node)
                .map(|(_, latency)| *latency);
            let query = "SELECT queue, value, ts FROM events WHERE node = ?1 AND metric = 'queue_occupancy' \
                        ORDER BY ts DESC LIMIT 1";
            if let Some(row) = rows(dir, query, vec![Value::Int(node.into())], 1)?.pop() {
                let mut row = Row(row.into_iter());
                (hop.queue, hop.latest_queue_occupancy) = (row.number(), row.number());
                let age = row
                    .number::<u64>()
                    .map(|ts| nic::time::now().saturating_sub(ts) / 1_000_000_000);
                hop.latest_queue_age_s = age.map(|age| u32::try_from(age).unwrap_or(u32::MAX));
            }
        }
        hops.push(hop);
    }
    Ok(hops)
}

fn rows(dir: &Path, sql: &str, params: Vec<Value>, limit: u32) -> Result<Vec<Vec<Value>>, CliError> {
    let options = QueryOptions {
        params,
        max_rows: limit as usize,
        timeout: Duration::from_secs(60),
        ..QueryOptions::default()
    };
    let table = open(dir)?
        .query(sql, &options)
        .map_err(|error| CliError::new(error.to_string()))?;
    for note in &table.notes {
        terminal::note(note);
    }
    Ok(table.rows)
}

/// Values of a row, read one after the other.
struct Row(std::vec::IntoIter<Value>);

impl Row {
    fn number<T: TryFrom<i64>>(&mut self) -> Option<T> {
        match self.0.next()? {
            Value::Int(number) => T::try_from(number).ok(),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Reads source, destination, ports and protocol. Always consumes all five columns.
    fn flow(&mut self) -> Option<Flow> {
        let src = self.text();
        let dst = self.text();
        let sport = self.number();
        let dport = self.number();
        let proto = self.number();
        Some(Flow {
            src: src?,
            dst: dst?,
            sport,
            dport,
            proto: proto?,
        })
    }
}
