//! Generates the OpenAPI document from the schemas of requests and responses and from the declared query parameters. The
//! table of operations below is the only part that is written by hand.

use std::ops::Range;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use ::export_role::role::view::ExportsView;
use ::manager::device::Election;
use aggregate_role::view::AggregatorView;
use dta_role::{memory::view::MemoryView, reporter::view::ReporterView, translator::view::TranslatorView};
use manage_role::role::view as manager;
use switch_role::role::{PortView, SwitchView};
use view::switch::{CountersView, RulesView};

use crate::{
    alerts, dta, filters, flows, intents, losses,
    params::{Form, Param},
    past, paths, queues, refusal, rules,
    schema::{answer, calculation::Calculation},
    session, state, stored, stream, traffic,
};
use ResponseBody::{Json, Stream, Text};

/// Function that makes a schema and registers the named types in it.
type MakeSchema = fn(&mut SchemaGenerator) -> Value;

/// One operation: a method of a path.
struct Operation {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    parameters: &'static [Param],
    body: Option<MakeSchema>,
    response: ResponseBody,
}

/// Content of a successful response.
enum ResponseBody {
    Json(MakeSchema),
    Stream(MakeSchema),
    Text,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn object(_: &mut SchemaGenerator) -> Value {
    json!({"type": "object"})
}

fn objects(_: &mut SchemaGenerator) -> Value {
    json!({"type": "array", "items": {"type": "object"}})
}

/// Declares operations: `method path [query parameters] {body} => response, description;`, with parameters and body optional.
macro_rules! operations {
    ($($method:ident $path:literal $([$parameters:expr])? $({$body:expr})? => $response:expr, $about:literal;)+) => {
        /// All operations, in the order of the routes.
        const OPERATIONS: &[Operation] = &[$(Operation {
            method: stringify!($method),
            path: $path,
            about: $about,
            parameters: [$($parameters,)? &[] as &[Param]][0],
            body: [$(Some($body as MakeSchema),)? None][0],
            response: $response,
        }),+];
    };
}

operations! {
    get "/api/v1/status" => Json(schema_of::<view::StatusView>),
        "State of the program: rates, loss budget, sources, tables, store.";
    get "/api/v1/rates" => Json(schema_of::<view::RateHistory>),
        "Rates per second, over the last 15 minutes at most. The store has older ones.";
    get "/api/v1/nodes" [state::NODES] => Json(schema_of::<view::Nodes>), "Nodes with latencies and queues, by id.";
    get "/api/v1/links" [state::LINKS] => Json(schema_of::<view::Links>), "Links, learnt from paths.";
    get "/api/v1/flows" [flows::FLOWS] => Json(schema_of::<view::Flows>), "Flows, largest first.";
    get "/api/v1/flows/{id}" [flows::FLOW] => Json(schema_of::<view::FlowDetail>), "One flow, hop by hop.";
    get "/api/v1/flows/{id}/history" [stored::HISTORY] => Json(schema_of::<view::HistoryView>),
        "Latencies and paths of a flow over time.";
    get "/api/v1/paths" [state::PATHS] => Json(schema_of::<view::Paths>), "Paths, most used first.";
    get "/api/v1/names" => Json(schema_of::<view::NamesView>), "Names of nodes, interfaces, hosts and drop reasons.";
    get "/api/v1/filter" [filters::FILTER] => Json(schema_of::<view::FilterHelp>),
        "Checks a filter of flows or events; returns completions and fields.";
    get "/api/v1/events" [stored::EVENTS] => Json(schema_of::<view::Events>), "Stored events, newest first.";
    get "/api/v1/events/stream" [stream::EVENTS] => Stream(schema_of::<view::EventView>),
        "Live events as server-sent events: each data line is an Event. `event: shed` with {\"shed\": n} after a slow client lost n events.";
    get "/api/v1/rollups" [stored::ROLLUPS] => Json(schema_of::<view::Rollups>),
        "Rollups in ascending order of time: the latest that match.";
    post "/api/v1/query" {schema_of::<stored::SqlQuery>} => Json(schema_of::<history::sql::Rows>),
        "Read-only SQL over the views events, rollups, flows, drops, losses, reports, recordings.";
    get "/api/v1/flows/{id}/latencies" [paths::LATENCIES] => Json(schema_of::<view::HopLatencies>),
        "Latency of a flow's packets at each hop, as a distribution over time.";
    get "/api/v1/paths/changes" [paths::FLOW_SELECTION] => Json(schema_of::<view::PathChanges>),
        "Changes of the paths of flows in a span of time: the path before and the path after.";
    get "/api/v1/paths/uses" [paths::FLOW_SELECTION] => Json(schema_of::<view::PathUses>),
        "Use of each path by flows in a span of time, in both directions.";
    get "/api/v1/losses" [losses::LOSSES] => Json(schema_of::<view::LossMap>),
        "Packet losses by location in a span of time, with their evidence; lost reports separately.";
    get "/api/v1/activity" [past::ACTIVITY] => Json(schema_of::<view::Activity>),
        "Reports, events and losses of a span of time, over time.";
    get "/api/v1/traffic" [traffic::TRAFFIC] => Json(schema_of::<view::TrafficView>),
        "Reports, events, latencies or occupancies over time: the largest groups by the selected measure, and all others together.";
    get "/api/v1/queues" [queues::HEAT] => Json(schema_of::<view::HeatView>),
        "A heat map: the greatest value of each queue (node, link) in each part of a span of time, worst first.";
    get "/api/v1/queues/{node}" [queues::BURST] => Json(schema_of::<view::BurstView>),
        "Flows that filled a queue, and flows that waited in it, from the stored reports of a span of time.";
    get "/api/v1/recordings" [queues::RECORDINGS] => Json(schema_of::<view::Recordings>),
        "Recordings of the flight recorder, with their causes.";
    get "/api/v1/alerts" [alerts::ALERTS] => Json(schema_of::<view::Alerts>),
        "Alerts: rules that are or were true, with times, counts, acknowledgements and comments. Worst first.";
    post "/api/v1/alerts/acknowledge" {schema_of::<alerts::Acknowledge>} => Json(schema_of::<view::AcknowledgedView>),
        "Acknowledges an alert until it fires again, or withdraws the acknowledgement.";
    get "/api/v1/alerts/silences" => Json(schema_of::<view::Silences>),
        "Active silences, and those that ended recently.";
    post "/api/v1/alerts/silences" {schema_of::<alerts::NewSilence>} => Json(schema_of::<view::SilenceView>),
        "Adds a silence: webhook, alertmanager and syslog do not send alerts that start during it. Alerts that still fire at its end are sent then.";
    delete "/api/v1/alerts/silences/{id}" => Json(schema_of::<view::SilenceView>), "Ends a silence.";
    post "/api/v1/alerts/try" {schema_of::<alerts::TryRule>} => Json(schema_of::<view::Trial>),
        "How often a rule would have become true in a span, judged by stored events; nothing changes.";
    post "/api/v1/alerts/rules" {schema_of::<alerts::NewRule>} => Json(schema_of::<view::EnabledView>),
        "Enables a rule: adds it to the configuration file and reloads it. If the file cannot be changed, the response has the reason and the text to add.";
    get "/api/v1/switch" => Json(schema_of::<SwitchView>), "The switch of this process: ports, queues, drops, INT.";
    put "/api/v1/switch/watch" {objects} => Json(schema_of::<SwitchView>),
        "Replaces the watched flows until the configuration is reloaded. The body is a list as in `[[switch.watch]]`.";
    put "/api/v1/switch/filters" {objects} => Json(schema_of::<SwitchView>),
        "Replaces the filters of the sink until the configuration is reloaded; unchanged ones keep their state. The body is a list as in `[[switch.filter]]`.";
    patch "/api/v1/switch/ports/{number}" {object} => Json(schema_of::<PortView>),
        "Changes a running port: `up`, `mtu`, `rate`, `depth`, `delay`, `loss`, `reorder`, `reorder_delay`, and the same with `in_`, as in `[[switch.ports]]`; null restores a setting.";
    post "/api/v1/switch/registers/wipe" => Json(schema_of::<SwitchView>),
        "Clears the SF-INT registers of all flows.";
    get "/api/v1/aggregator" => Json(schema_of::<AggregatorView>),
        "The aggregator of this process: postcards in, aggregates out.";
    get "/api/v1/reporter" => Json(schema_of::<ReporterView>),
        "The DTA reporter of this machine: reports of programs in, DTA out.";
    get "/api/v1/translator" => Json(schema_of::<TranslatorView>), "The DTA translator of this process.";
    get "/api/v1/switch/int" => Json(schema_of::<CountersView>), "INT counters of the switch of this process.";
    get "/api/v1/switch/rules" [rules::RULES] => Json(schema_of::<RulesView>),
        "Rules of a managed switch, its ports and what it can do.";
    patch "/api/v1/switch/rules" {schema_of::<rules::ChangesBody>} => Json(schema_of::<RulesView>),
        "Changes rules, all or none, on disk before the response if the switch has a state file. 409: another manager has a higher election; 412: the rules have another version.";
    post "/api/v1/switch/claim" {schema_of::<Election>} => Json(schema_of::<RulesView>),
        "Makes the requester the only writer of the rules. 409: another manager has a higher election.";
    post "/api/v1/switch/renew" {schema_of::<Election>} => Json(schema_of::<CountersView>),
        "Renews the lease of the manager that claimed the switch with this election. 409: another one did.";
    get "/api/v1/intents" => Json(schema_of::<manager::IntentsView>), "The intents of the manager, by name.";
    put "/api/v1/intents" {object} => Json(schema_of::<manager::IntentView>),
        "Adds an intent, or replaces the one of its name. The body is a table as in `[[intents]]`. 409: it is in the configuration file.";
    post "/api/v1/intents/plan" {object} => Json(schema_of::<manager::PlanView>),
        "Dry run: the changes and the cost of adding an intent.";
    get "/api/v1/intents/{name}" => Json(schema_of::<manager::IntentView>), "One intent.";
    delete "/api/v1/intents/{name}" => Json(schema_of::<manager::IntentsView>),
        "Removes an intent; the response has those that remain.";
    get "/api/v1/devices" => Json(schema_of::<manager::DevicesView>), "The devices of the manager, by node id.";
    get "/api/v1/devices/{name}" => Json(schema_of::<manager::DeviceView>), "One device.";
    delete "/api/v1/devices/{name}" => Json(schema_of::<manager::DevicesView>),
        "Stops driving a device that is permanently off and not in the inventory; the response has those that remain.";
    get "/api/v1/plan" => Json(schema_of::<manager::PlanView>),
        "Pending changes: those that wait until the network is stable, and those that need approval.";
    post "/api/v1/plan/apply" => Json(schema_of::<manager::PlanView>), "Approves the plan.";
    get "/api/v1/domain" => Json(schema_of::<manager::DomainView>),
        "The domain: links, encoding of INT, collectors.";
    post "/api/v1/domain/stop" => Json(schema_of::<manager::DomainView>),
        "Removes all INT from the devices; the intents stay, and can be started again.";
    post "/api/v1/domain/start" => Json(schema_of::<manager::DomainView>), "Installs the intents again.";
    get "/api/v1/domain/intents" => Json(schema_of::<manager::CopyView>),
        "State that a manager on standby copies from the active one: the intents that were added while it ran.";
    get "/api/v1/domain/history" [intents::HISTORY] => Json(schema_of::<manager::ManagerHistoryView>),
        "History of actions and their results, newest first.";
    get "/api/v1/domain/stream" => Stream(schema_of::<manager::ChangeView>),
        "Changes at the manager as server-sent events: each data line is a ManagerChange, and the name of the event is its kind. It begins with the state of each device and intent. `event: shed` with {\"shed\": n} after a slow client lost n changes: read the lists again.";
    get "/api/v1/exports" => Json(schema_of::<ExportsView>), "Exports: each stream of each `[exports.NAME]`.";
    get "/api/v1/dta" => Json(schema_of::<MemoryView>),
        "Collector memory of this process: RoCEv2 received, data written, translators connected.";
    get "/api/v1/dta/stores" => Json(schema_of::<dta::Stores>),
        "All stores of the memory, with their fill and the share of keys that a query is expected to find.";
    get "/api/v1/dta/stores/{name}" [dta::STORE] => Json(schema_of::<answer::StoreView>), "One store.";
    get "/api/v1/dta/stores/{name}/get" [dta::GET] => Json(schema_of::<answer::Answer>),
        "The data (key-write) or the path (postcarding) of a key.";
    get "/api/v1/dta/stores/{name}/count" [dta::COUNT] => Json(schema_of::<answer::CountAnswer>),
        "The count of a key (key-increment).";
    get "/api/v1/dta/stores/{name}/sketch" [dta::SKETCH] => Json(schema_of::<answer::SketchAnswer>),
        "The estimate of a sketch: of a key (count-min, count), or of everything (hyperloglog, aroma).";
    get "/api/v1/dta/lists" [dta::LISTS] => Json(schema_of::<dta::Lists>), "The lists of the memory.";
    get "/api/v1/dta/lists/{list}" [dta::TAIL] => Json(schema_of::<answer::TailAnswer>),
        "Entries of a list: the newest, or from a batch on.";
    get "/api/v1/dta/snapshots" => Json(schema_of::<dta::Snapshots>), "Existing snapshots, newest first.";
    post "/api/v1/dta/snapshots" {schema_of::<dta::SnapshotRequest>} => Json(schema_of::<dta::Snapshots>),
        "Takes snapshots, and responds when they are on disk.";
    get "/api/v1/dta/calculate" [dta::CALCULATE] => Json(schema_of::<Calculation>),
        "The probability that a key-write store answers, by the exact formula.";
    get "/api/v1/session" => Json(schema_of::<session::SessionView>), "Role and name of the requester's token.";
    get "/api/v1/config" => Json(object), "The effective configuration, without secrets.";
    post "/api/v1/config/reload" => Json(schema_of::<state::Reload>),
        "Reloads the configuration file. An invalid file changes nothing.";
    get "/api/v1/openapi.json" => Json(object), "This document.";
    get "/metrics" => Text, "Metrics for Prometheus.";
    get "/healthz" => Text, "200 while healthy, 503 when nothing can be stored.";
}

/// Generates the whole document.
pub(super) fn document() -> Value {
    let base = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // Two generators: fields with a default may be absent in a request body, but a response contains every field.
    let mut bodies = base.clone().for_deserialize().into_generator();
    let mut generator = base.for_serialize().into_generator();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let object = operation.describe(&mut generator, &mut bodies);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = object;
    }
    let error = schema_of::<refusal::Body<'static>>(&mut generator);
    let mut schemas = generator.take_definitions(true);
    schemas.extend(bodies.take_definitions(true));
    let mut schemas = Value::Object(schemas);
    remove_defaults(&mut schemas);
    let security = "A token of `[api]`. Operations that list the role `operate` refuse tokens with the role `read` (403). `GET /api/v1/session` returns the role of a token.";
    let error_response =
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
                "400": error_response("The request is malformed, or a value is out of range."),
                "401": error_response("A token is needed."),
                "403": error_response("The token may only read, or the host name or the origin is not allowed."),
                "404": error_response("No such resource, or this process has no such role."),
                "503": error_response("Busy, stopping, or unable to store; try again."),
                "default": error_response("Any other refusal."),
            },
            "schemas": schemas,
        },
    })
}

impl Operation {
    /// Returns the operation object. Response types are collected in `generator`, request types in `bodies`.
    fn describe(&self, generator: &mut SchemaGenerator, bodies: &mut SchemaGenerator) -> Value {
        let segments = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = segments.map(|name| segment(self.path, name)).collect();
        parameters.extend(self.parameters.iter().map(query));
        parameters.extend(conditional_headers(self.method, self.path));
        let content = match self.response {
            Json(make) => json!({"application/json": {"schema": make(generator)}}),
            Stream(make) => json!({"text/event-stream": {"schema": make(generator)}}),
            Text => json!({"text/plain": {"schema": {"type": "string"}}}),
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
        let mut object = json!({"summary": self.about, "parameters": parameters, "responses": responses});
        let method = self.method.to_uppercase().parse().unwrap();
        if session::may_change(&method, self.path) {
            object["security"] = json!([{}, {"bearer": ["operate"]}, {"query": ["operate"]}]);
        }
        if let Some(make) = self.body {
            let content = json!({"application/json": {"schema": make(bodies)}});
            object["requestBody"] = json!({"required": true, "content": content});
        }
        object
    }
}

/// Returns the conditional headers of an operation (RFC 9110: `If-Match`, `If-None-Match`).
fn conditional_headers(method: &str, path: &str) -> Vec<Value> {
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

/// Describes a path parameter, `{name}` in `path`.
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

/// Describes a query parameter with the range or pattern that the parser accepts.
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
        // The parser also accepts texts such as 2026-11-26T03:10Z; programs should send the number.
        Form::Time => {
            let Range { start, end } = settings::time::PLAUSIBLE;
            // 0 is the beginning of all that is stored.
            let range = json!({"minimum": start, "maximum": end - 1});
            json!({"type": "integer", "format": "uint64", "anyOf": [range, {"const": 0}]})
        }
        Form::Share { default } => {
            json!({"type": "number", "format": "double", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": default})
        }
        Form::Count => json!({"type": "string", "pattern": "^[0-9_]+[KMG]?$"}),
        Form::OneOf(names) => json!({"type": "string", "enum": names()}),
        Form::Cursor { pattern, .. } => json!({"type": "string", "pattern": pattern}),
        Form::Names(names, max) => {
            let (name, repeats) = (names().join("|"), max - 1);
            json!({"type": "string", "pattern": format!("^({name})(,({name})){{0,{repeats}}}$")})
        }
        Form::Flow => json!({"type": "string", "format": "flow"}),
        Form::Text => json!({"type": "string"}),
        Form::Filter => json!({"type": "string", "format": "filter"}),
    };
    let required = param.name == "keys";
    json!({"name": param.name, "in": "query", "required": required, "description": param.about, "schema": schema})
}

/// Removes defaults from a schema. Responses contain every field, so defaults for reading them are not part of the contract.
fn remove_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if !fields
                .get("default")
                .is_some_and(|field| field.is_object() && field.get("type").is_some())
            {
                fields.remove("default");
            }
            fields.values_mut().for_each(remove_defaults);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_defaults),
        _ => {}
    }
}
