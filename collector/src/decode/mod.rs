//! From bytes to values: a datagram, what its reports share, and the values of each hop in the collector's units.

pub(crate) mod clock;
mod datagram;
mod head;
mod node_units;
mod reading;
mod shapes;
mod stack;

pub use datagram::Datagram;
pub(crate) use datagram::{DatagramContext, StreamSeq, is_stacked, is_whole_path, version};
pub(crate) use head::{EventContext, Head, Origin, Signals};
pub(crate) use node_units::NodeUnits;
pub(crate) use reading::{
    ABSENT, EndTimestamps, Hops, MAX_HOPS, NO_VALUE, ReadHops, Reading, between, egress,
};
pub(crate) use shapes::Shapes;
pub(crate) use stack::{All, HistoryCells, NodeAlone, Plan, Plans, RecordKind, StackReport, Stacked};
