//! Makes the OpenAPI document from the types of the responses and the declared parameters.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::schema;
use crate::{
    alerts as of_alerts, dta, filters, flows, losses,
    params::{Form, Param},
    past, paths as of_paths, queues as of_queues, refusal, session, state, stored, stream, traffic,
};

/// Makes a schema, and notes the named types in it.
type Make = fn(&mut SchemaGenerator) -> Value;

/// One operation.
struct Operation {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    parameters: &'static [Param],
    body: Option<Make>,
    response: ResponseBody,
}

/// The content of a successful response.
enum ResponseBody {
    Json(Make),
    Stream(Make),
    Text,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn object(_: &mut SchemaGenerator) -> Value {
    json!({"type": "object"})
}

fn objects(_: &mut SchemaGenerator) -> Value {
    json!({"type": "array", "items": {"type": "object"}})
}

const fn get(
    path: &'static str,
    about: &'static str,
    parameters: &'static [Param],
    response: Make,
) -> Operation {
    Operation {
        method: "get",
        path,
        about,
        parameters,
        body: None,
        response: ResponseBody::Json(response),
    }
}

const fn change(
    method: &'static str,
    path: &'static str,
    about: &'static str,
    body: Option<Make>,
    response: Make,
) -> Operation {
    Operation {
        method,
        path,
        about,
        parameters: &[],
        body,
        response: ResponseBody::Json(response),
    }
}

/// All operations, in the order of the routes.
fn operations() -> Vec<Operation> {
    let mut all = network();
    all.extend(paths());
    all.extend(queues());
    all.extend(alerts());
    all.extend(roles());
    all.extend(rules());
    all.extend(manager());
    all.extend(domain());
    all.extend(exports());
    all.extend(memory());
    all.extend(program());
    all
}

fn network() -> Vec<Operation> {
    let events = "Live events as server-sent events: each data line is an Event. `event: shed` with {\"shed\": n} after a slow client lost n events.";
    vec![
        get(
            "/api/v1/status",
            "State of the program: rates, loss budget, sources, tables, store.",
            &[],
            of::<view::StatusView>,
        ),
        get(
            "/api/v1/rates",
            "Rates per second, over the last 15 minutes at most. The store has older ones.",
            &[],
            of::<view::RateHistory>,
        ),
        get(
            "/api/v1/nodes",
            "Nodes with latencies and queues, by id.",
            state::NODES,
            of::<view::Nodes>,
        ),
        get(
            "/api/v1/links",
            "Links, learnt from paths.",
            state::LINKS,
            of::<view::Links>,
        ),
        get(
            "/api/v1/flows",
            "Flows, largest first.",
            flows::FLOWS,
            of::<view::Flows>,
        ),
        get(
            "/api/v1/flows/{id}",
            "One flow, hop by hop.",
            flows::FLOW,
            of::<view::FlowDetail>,
        ),
        get(
            "/api/v1/flows/{id}/history",
            "Latencies and paths of a flow over time.",
            stored::HISTORY,
            of::<view::HistoryView>,
        ),
        get(
            "/api/v1/paths",
            "Paths, most used first.",
            state::PATHS,
            of::<view::Paths>,
        ),
        get(
            "/api/v1/names",
            "Names of nodes, interfaces and hosts.",
            &[],
            of::<view::NamesView>,
        ),
        get(
            "/api/v1/filter",
            "Checks a filter of flows or events; returns completions and fields.",
            filters::FILTER,
            of::<view::FilterHelp>,
        ),
        get(
            "/api/v1/events",
            "Stored events, newest first.",
            stored::EVENTS,
            of::<view::Events>,
        ),
        Operation {
            method: "get",
            path: "/api/v1/events/stream",
            about: events,
            parameters: stream::EVENTS,
            body: None,
            response: ResponseBody::Stream(of::<view::EventView>),
        },
        get(
            "/api/v1/rollups",
            "Rollups in ascending order of time: the latest that match.",
            stored::ROLLUPS,
            of::<view::Rollups>,
        ),
        change(
            "post",
            "/api/v1/query",
            "Read-only SQL over the views events, rollups, flows, drops, losses, reports, recordings.",
            Some(of::<stored::SqlQuery>),
            of::<history::sql::Rows>,
        ),
    ]
}

/// Paths, and what was lost on them, over time.
fn paths() -> Vec<Operation> {
    vec![
        get(
            "/api/v1/flows/{id}/latencies",
            "Latency of a flow's packets at each hop, as a distribution over time.",
            of_paths::LATENCIES,
            of::<view::HopLatencies>,
        ),
        get(
            "/api/v1/paths/changes",
            "Changes of the paths of flows in a span of time: the path before and the path after.",
            of_paths::OF_FLOWS,
            of::<view::PathChanges>,
        ),
        get(
            "/api/v1/paths/uses",
            "Use of each path by flows in a span of time, in both directions.",
            of_paths::OF_FLOWS,
            of::<view::PathUses>,
        ),
        get(
            "/api/v1/losses",
            "Packet losses by location in a span of time, with their evidence; lost reports separately.",
            losses::LOSSES,
            of::<view::LossMap>,
        ),
    ]
}

/// Counts and queues over time.
fn queues() -> Vec<Operation> {
    vec![
        get(
            "/api/v1/activity",
            "Reports, events and losses of a span of time, over time.",
            past::ACTIVITY,
            of::<view::Activity>,
        ),
        get(
            "/api/v1/traffic",
            "Reports, events, latencies or occupancies over time: the largest groups by the selected measure, and all others together.",
            traffic::TRAFFIC,
            of::<view::TrafficView>,
        ),
        get(
            "/api/v1/queues",
            "A heat map: the greatest value of each queue (node, link) in each part of a span of time, worst first.",
            of_queues::HEAT,
            of::<view::HeatView>,
        ),
        get(
            "/api/v1/queues/{node}",
            "Flows that filled a queue, and flows that waited in it, from the stored reports of a span of time.",
            of_queues::BURST,
            of::<view::BurstView>,
        ),
        get(
            "/api/v1/recordings",
            "Recordings of the flight recorder, with their causes.",
            of_queues::RECORDINGS,
            of::<view::Recordings>,
        ),
    ]
}

/// Alerts.
fn alerts() -> Vec<Operation> {
    vec![
        get(
            "/api/v1/alerts",
            "Alerts: rules that are or were true, with times, counts, acknowledgements and comments. Worst first.",
            of_alerts::ALERTS,
            of::<view::Alerts>,
        ),
        change(
            "post",
            "/api/v1/alerts/acknowledge",
            "Acknowledges an alert until it fires again, or withdraws the acknowledgement.",
            Some(of::<of_alerts::Acknowledge>),
            of::<view::AcknowledgedView>,
        ),
        get(
            "/api/v1/alerts/silences",
            "Active silences, and those that ended recently.",
            &[],
            of::<view::Silences>,
        ),
        change(
            "post",
            "/api/v1/alerts/silences",
            "Adds a silence: webhook, alertmanager and syslog do not send alerts that start during it. Alerts that still fire at its end are sent then.",
            Some(of::<of_alerts::NewSilence>),
            of::<view::SilenceView>,
        ),
        change(
            "delete",
            "/api/v1/alerts/silences/{id}",
            "Ends a silence.",
            None,
            of::<view::SilenceView>,
        ),
        change(
            "post",
            "/api/v1/alerts/try",
            "How often a rule would have become true in a span, judged by stored events; nothing changes.",
            Some(of::<of_alerts::TryRule>),
            of::<view::Trial>,
        ),
        change(
            "post",
            "/api/v1/alerts/rules",
            "Enables a rule: adds it to the configuration file and reloads it. If the file cannot be changed, the response has the reason and the text to add.",
            Some(of::<of_alerts::NewRule>),
            of::<view::EnabledView>,
        ),
    ]
}

/// Intents, devices and plans.
fn manager() -> Vec<Operation> {
    use manage_role::role::view as of_manager;
    vec![
        get(
            "/api/v1/intents",
            "The intents of the manager, by name.",
            &[],
            of::<of_manager::IntentsView>,
        ),
        change(
            "put",
            "/api/v1/intents",
            "Adds an intent, or replaces the one of its name. The body is a table as in `[[intents]]`. 409: it is in the configuration file.",
            Some(object),
            of::<of_manager::IntentView>,
        ),
        change(
            "post",
            "/api/v1/intents/plan",
            "Dry run: the changes and the cost of adding an intent.",
            Some(object),
            of::<of_manager::PlanView>,
        ),
        get(
            "/api/v1/intents/{name}",
            "One intent.",
            &[],
            of::<of_manager::IntentView>,
        ),
        change(
            "delete",
            "/api/v1/intents/{name}",
            "Removes an intent; the response has those that remain.",
            None,
            of::<of_manager::IntentsView>,
        ),
        get(
            "/api/v1/devices",
            "The devices of the manager, by node id.",
            &[],
            of::<of_manager::DevicesView>,
        ),
        get(
            "/api/v1/devices/{name}",
            "One device.",
            &[],
            of::<of_manager::DeviceView>,
        ),
        change(
            "delete",
            "/api/v1/devices/{name}",
            "Stops driving a device that is permanently off and not in the inventory; the response has those that remain.",
            None,
            of::<of_manager::DevicesView>,
        ),
        get(
            "/api/v1/plan",
            "Pending changes: those that wait until the network is stable, and those that need approval.",
            &[],
            of::<of_manager::PlanView>,
        ),
        change(
            "post",
            "/api/v1/plan/apply",
            "Approves the plan.",
            None,
            of::<of_manager::PlanView>,
        ),
    ]
}

/// The domain of a manager.
fn domain() -> Vec<Operation> {
    use crate::intents;
    use manage_role::role::view as of_manager;
    vec![
        get(
            "/api/v1/domain",
            "The domain: links, encoding of INT, collectors.",
            &[],
            of::<of_manager::DomainView>,
        ),
        change(
            "post",
            "/api/v1/domain/stop",
            "Removes all INT from the devices; the intents stay, and can be started again.",
            None,
            of::<of_manager::DomainView>,
        ),
        change(
            "post",
            "/api/v1/domain/start",
            "Installs the intents again.",
            None,
            of::<of_manager::DomainView>,
        ),
        get(
            "/api/v1/domain/intents",
            "State that a manager on standby copies from the active one: the intents that were added while it ran.",
            &[],
            of::<of_manager::CopyView>,
        ),
        get(
            "/api/v1/domain/history",
            "History of actions and their results, newest first.",
            intents::HISTORY,
            of::<of_manager::ManagerHistoryView>,
        ),
        Operation {
            method: "get",
            path: "/api/v1/domain/stream",
            about: "Changes at the manager as server-sent events: each data line is a ManagerChange, and the name of the event is its kind. It begins with the state of each device and intent. `event: shed` with {\"shed\": n} after a slow client lost n changes: read the lists again.",
            parameters: &[],
            body: None,
            response: ResponseBody::Stream(of::<of_manager::ChangeView>),
        },
    ]
}

/// What a manager reads and writes.
fn rules() -> Vec<Operation> {
    use view::{
        rules::ElectionView,
        switch::{CountersView, RulesView},
    };
    vec![
        get(
            "/api/v1/switch/int",
            "INT counters of the switch of this process.",
            &[],
            of::<CountersView>,
        ),
        get(
            "/api/v1/switch/rules",
            "Rules of a managed switch, its ports and what it can do.",
            crate::rules::RULES,
            of::<RulesView>,
        ),
        change(
            "patch",
            "/api/v1/switch/rules",
            "Changes rules, all or none, on disk before the response if the switch has a state file. 409: another manager has a higher election; 412: the rules have another version.",
            Some(of::<crate::rules::ChangesBody>),
            of::<RulesView>,
        ),
        change(
            "post",
            "/api/v1/switch/claim",
            "Makes the requester the only writer of the rules. 409: another manager has a higher election.",
            Some(of::<ElectionView>),
            of::<RulesView>,
        ),
        change(
            "post",
            "/api/v1/switch/renew",
            "Renews the lease of the manager that claimed the switch with this election. 409: another one did.",
            Some(of::<ElectionView>),
            of::<CountersView>,
        ),
    ]
}

fn roles() -> Vec<Operation> {
    use aggregate_role::view::AggregatorView;
    use dta_role::{reporter::view::ReporterView, translator::view::TranslatorView};
    use switch_role::role::{PortView, SwitchView};
    vec![
        get(
            "/api/v1/switch",
            "The switch of this process: ports, queues, drops, INT.",
            &[],
            of::<SwitchView>,
        ),
        change(
            "put",
            "/api/v1/switch/watch",
            "Replaces the watched flows until the configuration is reloaded. The body is a list as in `[[switch.watch]]`.",
            Some(objects),
            of::<SwitchView>,
        ),
        change(
            "put",
            "/api/v1/switch/filters",
            "Replaces the filters of the sink until the configuration is reloaded; unchanged ones keep their state. The body is a list as in `[[switch.filter]]`.",
            Some(objects),
            of::<SwitchView>,
        ),
        change(
            "patch",
            "/api/v1/switch/ports/{number}",
            "Changes a running port: `up`, `mtu`, `rate`, `depth`, `delay`, `loss`, `reorder`, `reorder_delay`, and the same with `in_`, as in `[[switch.ports]]`; null restores a setting.",
            Some(object),
            of::<PortView>,
        ),
        change(
            "post",
            "/api/v1/switch/registers/wipe",
            "Clears the SF-INT registers of all flows.",
            None,
            of::<SwitchView>,
        ),
        get(
            "/api/v1/aggregator",
            "The aggregator of this process: postcards in, aggregates out.",
            &[],
            of::<AggregatorView>,
        ),
        get(
            "/api/v1/reporter",
            "The DTA reporter of this machine: reports of programs in, DTA out.",
            &[],
            of::<ReporterView>,
        ),
        get(
            "/api/v1/translator",
            "The DTA translator of this process.",
            &[],
            of::<TranslatorView>,
        ),
    ]
}

fn exports() -> Vec<Operation> {
    use ::export_role::role::view::ExportsView;
    vec![get(
        "/api/v1/exports",
        "Exports: each stream of each `[exports.NAME]`.",
        &[],
        of::<ExportsView>,
    )]
}

fn memory() -> Vec<Operation> {
    use dta_role::memory::view::MemoryView;
    use schema::answer;
    vec![
        get(
            "/api/v1/dta",
            "Collector memory of this process: RoCEv2 received, data written, translators connected.",
            &[],
            of::<MemoryView>,
        ),
        get(
            "/api/v1/dta/stores",
            "All stores of the memory, with their fill and the share of keys that a query is expected to find.",
            &[],
            of::<dta::Stores>,
        ),
        get(
            "/api/v1/dta/stores/{name}",
            "One store.",
            dta::STORE,
            of::<answer::StoreView>,
        ),
        get(
            "/api/v1/dta/stores/{name}/get",
            "The data (key-write) or the path (postcarding) of a key.",
            dta::GET,
            of::<answer::Answer>,
        ),
        get(
            "/api/v1/dta/stores/{name}/count",
            "The count of a key (key-increment).",
            dta::COUNT,
            of::<answer::CountAnswer>,
        ),
        get(
            "/api/v1/dta/stores/{name}/sketch",
            "The estimate of a sketch: of a key (count-min, count), or of everything (hyperloglog, aroma).",
            dta::SKETCH,
            of::<answer::SketchAnswer>,
        ),
        get(
            "/api/v1/dta/lists",
            "The lists of the memory.",
            dta::LISTS,
            of::<dta::Lists>,
        ),
        get(
            "/api/v1/dta/lists/{list}",
            "Entries of a list: the newest, or from a batch on.",
            dta::TAIL,
            of::<answer::TailAnswer>,
        ),
        get(
            "/api/v1/dta/snapshots",
            "Existing snapshots, newest first.",
            &[],
            of::<dta::Snapshots>,
        ),
        change(
            "post",
            "/api/v1/dta/snapshots",
            "Takes snapshots, and responds when they are on disk.",
            Some(of::<dta::Wanted>),
            of::<dta::Snapshots>,
        ),
        get(
            "/api/v1/dta/calculate",
            "The probability that a key-write store answers, by the exact formula.",
            dta::CALCULATE,
            of::<schema::calculation::Calculation>,
        ),
    ]
}

fn program() -> Vec<Operation> {
    let text = |path, about| Operation {
        method: "get",
        path,
        about,
        parameters: &[],
        body: None,
        response: ResponseBody::Text,
    };
    vec![
        get(
            "/api/v1/session",
            "Role and name of the requester's token.",
            &[],
            of::<session::SessionView>,
        ),
        get(
            "/api/v1/config",
            "The effective configuration, without secrets.",
            &[],
            object,
        ),
        change(
            "post",
            "/api/v1/config/reload",
            "Reloads the configuration file. An invalid file changes nothing.",
            None,
            of::<state::Reload>,
        ),
        get("/api/v1/openapi.json", "This document.", &[], object),
        text("/metrics", "Metrics for Prometheus."),
        text("/healthz", "200 while healthy, 503 when nothing can be stored."),
    ]
}

/// Returns the whole document.
pub(super) fn document() -> Value {
    let base = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // A body may leave out what has a default; a response contains every field.
    let mut bodies = base.clone().for_deserialize().into_generator();
    let mut generator = base.for_serialize().into_generator();
    let mut paths = Map::new();
    for operation in operations() {
        let described = operation.describe(&mut generator, &mut bodies);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    let error = of::<refusal::Body<'static>>(&mut generator);
    let mut schemas = generator.take_definitions(true);
    schemas.extend(bodies.take_definitions(true));
    let mut schemas = Value::Object(schemas);
    without_defaults(&mut schemas);
    let security = "A token of `[api]`. Operations that list the role `operate` refuse tokens with the role `read` (403). `GET /api/v1/session` returns the role of a token.";
    let refused =
        |about: &str| json!({"description": about, "content": {"application/json": {"schema": error}}});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hopwise",
            "version": "1",
            "description": "Network telemetry. Times are nanoseconds since the Unix epoch; 64-bit ids are hexadecimal strings.",
            "license": {"name": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"query": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": security},
                "query": {"type": "apiKey", "in": "query", "name": "token", "description": security},
            },
            "responses": {
                "400": refused("The request is malformed, or a value is out of range."),
                "401": refused("A token is needed."),
                "403": refused("The token may only read, or the host name or the origin is not allowed."),
                "404": refused("No such resource, or this process has no such role."),
                "503": refused("Busy, stopping, or unable to store; try again."),
                "default": refused("Any other refusal."),
            },
            "schemas": schemas,
        },
    })
}

impl Operation {
    fn describe(&self, generator: &mut SchemaGenerator, bodies: &mut SchemaGenerator) -> Value {
        let segments = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = segments.map(|name| segment(self.path, name)).collect();
        parameters.extend(self.parameters.iter().map(query));
        parameters.extend(conditions(self.method, self.path));
        let content = match self.response {
            ResponseBody::Json(make) => json!({"application/json": {"schema": make(generator)}}),
            ResponseBody::Stream(make) => json!({"text/event-stream": {"schema": make(generator)}}),
            ResponseBody::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
        };
        let mut responses = json!({"200": {"description": "Success.", "content": content}});
        let statuses: &[&str] = match self.path {
            "/healthz" => &["403", "503", "default"],
            "/metrics" | "/api/v1/openapi.json" => &["400", "401", "403", "503", "default"],
            _ => &["400", "401", "403", "404", "503", "default"],
        };
        for status in statuses {
            responses[*status] = json!({"$ref": format!("#/components/responses/{status}")});
        }
        let mut described = json!({"summary": self.about, "parameters": parameters, "responses": responses});
        let method = self.method.to_uppercase().parse().unwrap();
        if session::may_change(&method, self.path) {
            described["security"] = json!([{}, {"bearer": ["operate"]}, {"query": ["operate"]}]);
        }
        if let Some(make) = self.body {
            let content = json!({"application/json": {"schema": make(bodies)}});
            described["requestBody"] = json!({"required": true, "content": content});
        }
        described
    }
}

/// Returns the headers that say under which condition a request is executed.
fn conditions(method: &str, path: &str) -> Vec<Value> {
    let header = |name: &str, required: bool, about: &str| json!({"name": name, "in": "header", "required": required, "description": about, "schema": {"type": "string"}});
    let intent = "The `etag` of the intent, in quotation marks: only this version is changed, else 412; `*`: any version.";
    match (method, path) {
        ("patch", "/api/v1/switch/rules") => {
            vec![header(
                "If-Match",
                true,
                "The `etag` of the rules from which the changes were made.",
            )]
        }
        ("put", "/api/v1/intents") => vec![
            header("If-Match", false, intent),
            header("If-None-Match", false, "`*`: only a new intent, else 412."),
        ],
        ("get", "/api/v1/domain/intents") => {
            vec![header(
                "If-None-Match",
                false,
                "The `ETag` of the last response: 304 while it is the current one.",
            )]
        }
        ("delete", "/api/v1/intents/{name}") => vec![header("If-Match", false, intent)],
        _ => vec![],
    }
}

fn segment(path: &str, name: &str) -> Value {
    let (about, schema) = match name {
        "id" if path.starts_with("/api/v1/alerts") => (
            "Number of the silence.",
            json!({"type": "integer", "format": "uint64", "minimum": 0}),
        ),
        "id" => (
            "Flow id (16 hexadecimal digits), or the flow as text, percent-encoded.",
            json!({"type": "string", "format": "flow-or-id"}),
        ),
        "number" => (
            "Port number.",
            json!({"type": "integer", "format": "uint16", "minimum": 0, "maximum": u16::MAX}),
        ),
        "name" if path.starts_with("/api/v1/intents") => ("Name of the intent.", json!({"type": "string"})),
        "name" if path.starts_with("/api/v1/devices") => {
            ("Name or node id of the device.", json!({"type": "string"}))
        }
        "node" => (
            "Node id.",
            json!({"type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX}),
        ),
        "list" => (
            "List id.",
            json!({"type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX}),
        ),
        _ => ("Name or id of the store.", json!({"type": "string"})),
    };
    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
}

fn query(param: &Param) -> Value {
    let schema = match param.form {
        Form::Integer { min, max, default } => {
            let format = if max > u64::from(u32::MAX) {
                "uint64"
            } else {
                "uint32"
            };
            let mut schema = json!({"type": "integer", "format": format, "minimum": min, "maximum": max});
            if let Some(default) = default {
                schema["default"] = default.into();
            }
            schema
        }
        // Also a text such as 2026-11-26T03:10Z; programs have the number.
        Form::Time => json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX}),
        Form::Share { default } => {
            json!({"type": "number", "format": "double", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": default})
        }
        Form::Count => json!({"type": "string", "pattern": "^[0-9_]+[KMG]?$"}),
        Form::OneOf(names) => json!({"type": "string", "enum": names()}),
        Form::Cursor { pattern, .. } => json!({"type": "string", "pattern": pattern}),
        Form::Names(names, most) => {
            let (name, more) = (names().join("|"), most - 1);
            json!({"type": "string", "pattern": format!("^({name})(,({name})){{0,{more}}}$")})
        }
        Form::Flow => json!({"type": "string", "format": "flow"}),
        Form::Text => json!({"type": "string"}),
        Form::Filter => json!({"type": "string", "format": "filter"}),
    };
    let required = param.name == "keys";
    json!({"name": param.name, "in": "query", "required": required, "description": param.about, "schema": schema})
}

/// Removes the defaults from a schema: responses contain every field, so the defaults for reading them are
/// not part of the contract.
fn without_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if !fields
                .get("default")
                .is_some_and(|field| field.is_object() && field.get("type").is_some())
            {
                fields.remove("default");
            }
            fields.values_mut().for_each(without_defaults);
        }
        Value::Array(list) => list.iter_mut().for_each(without_defaults),
        _ => {}
    }
}
