//! `/dta`: collector memory. Lists stores, looks up keys, tails lists, queries sketches, takes snapshots, calculates sizes.

use std::path::PathBuf;
use std::sync::Arc;

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task;

use super::{
    context::Context,
    params::{Form, NoParams, Param, Params, Segment},
    query::{internal_error, read_permit},
    refusal::Refusal,
};
use dta::calculate::{self, Calculation};
use dta::key::Key;
use dta::source::{
    Answer, CountAnswer, KeyQuery, ListView, SketchAnswer, SourceStore, StoreView, TailAnswer, Values,
};
use dta_role::memory::{Memory, SnapshotView, view::MemoryView};

/// Maximum number of samples in an answer.
const MAX_SAMPLES: u64 = 10_000;
const SNAPSHOT: Param = Param::integer(
    "snapshot",
    "Query the snapshot with this `ts` instead of the live store.",
    0,
    u64::MAX,
);
const KEY: Param = Param::new(
    "key",
    "The key: a flow such as 10.0.0.1:1234>10.0.0.2:80/6 (or '10.0.0.1:1234 > 10.0.0.2:80 tcp'), an address, a number (4 bytes; \
     u8:7, u16:7, u64:7 for other widths), bytes as 0x0a000001, or several of these separated by commas.",
    Form::Text,
);
/// Query parameters of `/dta/stores/{name}`.
pub(super) const STORE: &[Param] = &[SNAPSHOT];
/// Query parameters of `/dta/stores/{name}/count`.
pub(super) const COUNT: &[Param] = &[
    KEY,
    copies_param("Counters that each report adds to.", Some(2)),
    SNAPSHOT,
];
/// Query parameters of `/dta/lists`.
pub(super) const LISTS: &[Param] = &[Param::limit(1_000, 65_536)];
/// Query parameters of `/dta/lists/{list}`.
pub(super) const TAIL: &[Param] = &[
    Param::integer(
        "from",
        "First batch: `next` of the previous answer; default: the newest entries.",
        0,
        u32::MAX as u64,
    ),
    Param::limit(20, 10_000),
];

fn memory_of(context: &Context) -> Result<&Arc<Memory>, Refusal> {
    let missing = "this process has no collector memory; add [collector.memory] to its configuration";
    context.memory.as_ref().ok_or_else(|| Refusal::not_found(missing))
}

/// Runs work that reads much memory or the disk on a blocking thread, a bounded number at a time.
///
/// # Errors
/// There is no collector memory, no permit became free in time, or `work` fails.
async fn run_blocking<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&Memory) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let memory = Arc::clone(memory_of(context)?);
    let permit = read_permit(context).await?;
    let work = task::spawn_blocking(move || {
        // Held until the work is done, even if the client disconnects.
        let _permit = permit;
        work(&memory)
    });
    work.await.unwrap_or_else(|_| Err(internal_error()))
}

/// Finds the requested store: the live one or, with `snapshot`, a snapshot of it.
fn requested_store(memory: &Memory, name: &str, params: &Params) -> Result<Arc<SourceStore>, Refusal> {
    let live = memory.source.find(name).map_err(Refusal::not_found)?;
    let Some(ts) = params.number::<u64>("snapshot")? else {
        return Ok(Arc::clone(live));
    };
    let file = PathBuf::from(format!("{}@{ts}.{}", live.name(), ::dta::source::EXTENSION));
    let store = SourceStore::open(&memory.snapshot_directory().join(file));
    store.map(Arc::new).map_err(|error| {
        Refusal::not_found(format!(
            "there is no such snapshot ({error}); /api/v1/dta/snapshots lists them"
        ))
    })
}

fn parse_key(params: &Params) -> Result<Option<Key>, Refusal> {
    params
        .text("key")
        .map(|text| text.parse::<Key>().map_err(Refusal::bad_request))
        .transpose()
}

fn required_key(params: &Params) -> Result<Key, Refusal> {
    parse_key(params)?
        .ok_or_else(|| Refusal::bad_request(format!("the key is missing; add key={}", ::dta::key::FORMS)))
}

/// Returns the counters and connections of the collector memory.
pub(crate) async fn view(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<MemoryView>, Refusal> {
    Ok(Json(memory_of(&context)?.view()))
}

/// The response of `/dta/stores`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stores {
    /// All stores, in the order of the configuration.
    #[cfg_attr(test, schemars(with = "Vec<crate::schema::answer::StoreView>"))]
    stores: Vec<StoreView>,
}

/// Returns all stores, with their occupancy and expected answers.
pub(crate) async fn stores(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<Stores>, Refusal> {
    run_blocking(&context, |memory| {
        let stores = memory.source.stores().iter();
        Ok(Json(Stores {
            stores: stores.map(|store| store.view()).collect(),
        }))
    })
    .await
}

const fn copies_param(about: &'static str, default: Option<u64>) -> Param {
    Param::new(
        "copies",
        about,
        Form::Integer {
            min: 1,
            max: 4,
            default,
        },
    )
}

/// Query parameters of `/dta/stores/{name}/get`.
pub(super) const GET: &[Param] = &[
    KEY,
    Param::new(
        "policy",
        "Policy when copies differ; default: as configured.",
        Form::OneOf(|| vec!["first", "majority", "strict"]),
    ),
    copies_param("Copies to read.", Some(4)),
    Param::integer(
        "largest",
        "Largest value that a node reports in postcards. With it, a slot in the artifact's layout proves that it holds the path of this key.",
        0,
        u32::MAX as u64,
    ),
    SNAPSHOT,
];
/// Query parameters of `/dta/stores/{name}/sketch`.
pub(super) const SKETCH: &[Param] = &[
    KEY,
    Param::integer("epoch", "This epoch instead of the newest.", 0, u16::MAX as u64),
    Param::new(
        "samples",
        "Number of samples to return (aroma).",
        Form::Integer {
            min: 0,
            max: MAX_SAMPLES,
            default: Some(0),
        },
    ),
    SNAPSHOT,
];
/// Query parameters of `/dta/calculate`.
pub(super) const CALCULATE: &[Param] = &[
    Param::new(
        "keys",
        "Number of different keys: a number, or one with K, M or G.",
        Form::Count,
    ),
    Param::new(
        "slots",
        "Number of slots, a power of two; default: as many as needed.",
        Form::Count,
    ),
    copies_param("Copies of each key; default: the best number.", None),
    Param::new(
        "data",
        "Bytes of data of a key.",
        Form::Integer {
            min: 1,
            max: 1024,
            default: Some(20),
        },
    ),
    Param::new(
        "answered",
        "Share of keys to be answered, when `slots` is absent.",
        Form::Share { default: 0.99 },
    ),
];

/// Returns the view of one store.
pub(crate) async fn store(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    params: Params,
) -> Result<Json<StoreView>, Refusal> {
    let params = params.only(STORE)?;
    run_blocking(&context, move |memory| {
        Ok(Json(requested_store(memory, &name, &params)?.view()))
    })
    .await
}

/// Looks up a key in a store.
pub(crate) async fn get(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    params: Params,
) -> Result<Json<Answer>, Refusal> {
    let params = params.only(GET)?;
    let key = required_key(&params)?;
    run_blocking(&context, move |memory| {
        let policy = params.text("policy").unwrap_or(memory.settings.policy.name());
        let policy = dta::Policy::from_name(policy).ok_or_else(|| {
            Refusal::bad_request(format!(
                "there is no policy {policy:?}; use first, majority or strict"
            ))
        })?;
        let largest = params.number::<u32>("largest")?;
        let query = KeyQuery {
            policy,
            copies: params.required_number("copies")?,
            largest,
        };
        requested_store(memory, &name, &params)?
            .get(&key, query)
            .map(Json)
            .map_err(Refusal::bad_request)
    })
    .await
}

/// Returns the count of a key.
pub(crate) async fn count(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    params: Params,
) -> Result<Json<CountAnswer>, Refusal> {
    let params = params.only(COUNT)?;
    let key = required_key(&params)?;
    run_blocking(&context, move |memory| {
        let copies = params.required_number("copies")?;
        requested_store(memory, &name, &params)?
            .count(&key, copies)
            .map(Json)
            .map_err(Refusal::bad_request)
    })
    .await
}

/// Queries a sketch: the estimate for a key, or samples.
pub(crate) async fn sketch(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    params: Params,
) -> Result<Json<SketchAnswer>, Refusal> {
    let params = params.only(SKETCH)?;
    let key = parse_key(&params)?;
    run_blocking(&context, move |memory| {
        let samples = params.required_number("samples")?;
        let epoch = params.number("epoch")?;
        requested_store(memory, &name, &params)?
            .sketch(key.as_ref(), epoch, samples)
            .map(Json)
            .map_err(Refusal::bad_request)
    })
    .await
}

/// The response of `/dta/lists`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Lists {
    /// Lists of all stores, at most `limit`.
    #[cfg_attr(test, schemars(with = "Vec<crate::schema::answer::ListView>"))]
    lists: Vec<ListView>,
}

/// Returns the lists of all stores, at most `limit`.
pub(crate) async fn lists(
    State(context): State<Arc<Context>>,
    params: Params,
) -> Result<Json<Lists>, Refusal> {
    let limit = params.only(LISTS)?.limit()?;
    run_blocking(&context, move |memory| {
        let stores = &memory.settings.stores;
        let lists = memory.source.lists(
            |name: &str| {
                stores
                    .iter()
                    .any(|store| store.name == name && store.events.is_some())
            },
            limit,
        );
        Ok(Json(Lists { lists }))
    })
    .await
}

/// Returns entries of a list, the newest by default.
pub(crate) async fn tail(
    State(context): State<Arc<Context>>,
    Segment(list): Segment,
    params: Params,
) -> Result<Json<TailAnswer>, Refusal> {
    let params = params.only(TAIL)?;
    let list = list
        .parse::<u32>()
        .map_err(|_| Refusal::bad_request("invalid list number; /api/v1/dta/lists lists them"))?;
    let limit = params.limit()?;
    let from = params.number("from")?;
    let reasons = context.active_config.get().collect().drop_reasons();
    run_blocking(&context, move |memory| {
        let mut answer = memory
            .source
            .tail(list, from, limit)
            .map_err(Refusal::not_found)?;
        let entries = answer.entries.iter_mut();
        for fields in entries.filter_map(|entry| entry.fields.as_mut()) {
            add_reason_name(fields, &reasons);
        }
        Ok(Json(answer))
    })
    .await
}

/// Adds the configured name of a drop reason, if there is one.
fn add_reason_name(fields: &mut Values, reasons: &view::ReasonNames) {
    let code = fields
        .get("reason")
        .and_then(Value::as_u64)
        .and_then(|code| u8::try_from(code).ok());
    if let Some(name) = code.and_then(|code| reasons.get(&code)) {
        fields.0.push(("reason_name".to_owned(), name.as_str().into()));
    }
}

/// The response of `/dta/snapshots`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Snapshots {
    /// The snapshots on disk, newest first, or those that were just taken.
    snapshots: Vec<SnapshotView>,
}

/// Lists all snapshots, newest first.
pub(crate) async fn snapshots(
    State(context): State<Arc<Context>>,
    _: NoParams,
) -> Result<Json<Snapshots>, Refusal> {
    run_blocking(&context, |memory| {
        Ok(Json(Snapshots {
            snapshots: memory.snapshot_list(),
        }))
    })
    .await
}

/// The stores of which to take a snapshot.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SnapshotRequest"))]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRequest {
    /// Names of stores; none: those of the schedule, or all.
    #[serde(default)]
    stores: Vec<String>,
}

/// Takes snapshots now, and responds when they are on disk.
pub(crate) async fn snapshot(
    State(context): State<Arc<Context>>,
    _: NoParams,
    request: Result<Json<SnapshotRequest>, JsonRejection>,
) -> Result<Json<Snapshots>, Refusal> {
    let Json(request) = request.map_err(|error| {
        Refusal::bad_request(format!(
            "the body cannot be read: {}; send {{\"stores\": [\"NAME\"]}}",
            error.body_text()
        ))
    })?;
    run_blocking(&context, move |memory| {
        let snapshots = memory.snapshot(&request.stores).map_err(Refusal::bad_request)?;
        Ok(Json(Snapshots { snapshots }))
    })
    .await
}

/// Calculates the size and answer probability of a store that need not exist.
pub(crate) async fn calculator(params: Params) -> Result<Json<Calculation>, Refusal> {
    let params = params.only(CALCULATE)?;
    let requirements = calculate::Requirements {
        keys: params
            .count("keys")
            .ok_or_else(|| Refusal::bad_request("the number of keys is missing; add keys=1000000"))?,
        slots: params.count("slots"),
        copies: params.number("copies")?,
        data: params.required_number("data")?,
        answered: params.share("answered")?,
    };
    calculate::calculate(&requirements)
        .map(Json)
        .map_err(Refusal::bad_request)
}
