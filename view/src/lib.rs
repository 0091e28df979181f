//! API responses as plain types. They serialise to the JSON of `/api/v1`, and commands deserialise responses into them.
//!
//! `api/src/openapi.json` and `ui/src/api/generated.ts` are generated from these types, including their doc comments. Times are
//! nanoseconds since the Unix epoch. 64-bit IDs are hexadecimal strings, because numbers in JavaScript are exact only up to
//! 2^53. Missing fields get their default, and unknown ones are ignored, so commands work with servers of other versions.

#![forbid(unsafe_code)]

mod alerts;
mod event;
mod fill;
mod filters;
mod losses;
mod name;
mod names;
mod network;
mod past;
mod paths;
mod queues;
mod reporter;
pub mod rules;
#[cfg(feature = "schema")]
pub mod schema;
mod status;
pub mod switch;
mod traffic;

pub use alerts::{
    AcknowledgedView, AlertView, Alerts, EnabledView, EpisodeView, FiringView, SilenceView, Silences, Trial,
};
pub use event::{EventView, Events, Flow, ReasonNames, RollupView, Rollups, ends, fraction, id, node, path};
pub use fill::fill;
pub use filters::{CompletionView, FaultView, FieldView, FilterHelp};
pub use losses::{DropsView, LinkLoss, LossMap, ReporterView};
pub use name::{Name, NamedCounts};
pub use names::{Names, NamesView};
pub use network::{
    FlowDetail, FlowView, Flows, HistoryView, HopLatency, HopView, LinkView, Links, NodeView, Nodes,
    PathSince, PathView, Paths, PointView, QueueView, Spread,
};
pub use past::{Activity, ActivityPoint, Latencies, RangeView};
pub use paths::{
    ChangeGroupView, DirectionView, HopLatencies, LatencySpread, PathChangeView, PathChanges, PathUses,
    UsedPath,
};
pub use queues::{
    BurstView, ChangeView, DropCount, HeatRowView, HeatView, PartView, PassageView, RecorderView,
    RecordingView, Recordings,
};
pub use reporter::{ReporterCollector, reporter_collectors};
pub use status::{
    Evidence, FileProblemView, InputView, PostcardsView, RateHistory, Rates, RatesThen, SourceView, Stage,
    StatusView, StoreView, StreamsView, TableView, TriedView, WorkerView,
};
pub use traffic::{TrafficRow, TrafficView};
