//! Converts stored records to export records, and positions between store and exporter.

use std::sync::Arc;

use export::{
    Position,
    record::{Alert, EventRecord, LossRecord, Record, RollupPart, Stream},
};
use store::{EventRow, FlowState, StoredRecord, StreamPosition};

/// Converts a position of the exporter into one of the store.
pub(super) fn stream_position(position: Position) -> StreamPosition {
    StreamPosition {
        base: position.file,
        row: position.row,
    }
}

/// Converts a position of the store into one of the exporter.
pub(super) fn position(stored: StreamPosition) -> Position {
    Position {
        file: stored.base,
        row: stored.row,
    }
}

/// Converts a stored record to a record of the stream, or returns `None` if it does not belong to the stream.
pub(super) fn record(stream: Stream, stored: StoredRecord) -> Option<Record> {
    if stream == Stream::Alerts {
        let StoredRecord::Event(row) = stored else {
            return None;
        };
        return Alert::from_event(&row.event, row.rule.map(Arc::from))
            .map(|alert| Record::Alert(Box::new(alert)));
    }
    Some(match stored {
        StoredRecord::Event(EventRow {
            event,
            rule,
            path,
            first,
        }) => {
            let first = first.map(|first| (first.flow_latency, first.basis, first.hop_latencies));
            Record::Event(Box::new(EventRecord {
                event,
                rule: rule.map(Arc::from),
                path,
                first,
            }))
        }
        StoredRecord::Rollup(rollup, part) => Record::Rollup(Box::new(RollupPart { rollup, part, nth: 0 })),
        StoredRecord::Flow(FlowState { row, path }) => Record::Flow(Box::new((row, path))),
        StoredRecord::Drop(drop) => Record::Drop(Box::new(drop)),
        StoredRecord::Loss(loss, number) => Record::Loss(Box::new(LossRecord { loss, number })),
    })
}
