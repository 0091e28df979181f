//! Field numbers of the OTLP protobuf messages: `common.proto`, `resource.proto`, `logs.proto` and `metrics.proto` of
//! opentelemetry-proto 1.x.

/// `ExportLogsServiceRequest` and `ExportMetricsServiceRequest`, which have the same structure.
pub(super) mod export_request {
    pub(in super::super) const RESOURCE_RECORDS: u32 = 1;
}

/// Fields of the messages `ResourceLogs` and `ResourceMetrics`.
pub(super) mod resource_records {
    pub(in super::super) const RESOURCE: u32 = 1;
    pub(in super::super) const SCOPE_RECORDS: u32 = 2;
}

/// Fields of the message `Resource`.
pub(super) mod resource {
    pub(in super::super) const ATTRIBUTES: u32 = 1;
}

/// Fields of the messages `ScopeLogs` and `ScopeMetrics`.
pub(super) mod scope_records {
    pub(in super::super) const SCOPE: u32 = 1;
    pub(in super::super) const RECORDS: u32 = 2;
}

/// Fields of the message `InstrumentationScope`.
pub(super) mod scope {
    pub(in super::super) const NAME: u32 = 1;
    pub(in super::super) const VERSION: u32 = 2;
}

/// Fields of the message `KeyValue`.
pub(super) mod key_value {
    pub(in super::super) const KEY: u32 = 1;
    pub(in super::super) const VALUE: u32 = 2;
}

/// Fields of the messages `AnyValue` and `ArrayValue`.
pub(super) mod any_value {
    pub(in super::super) const STRING: u32 = 1;
    pub(in super::super) const INT: u32 = 3;
    pub(in super::super) const ARRAY: u32 = 5;
    pub(in super::super) const ARRAY_VALUES: u32 = 1;
}

/// `LogRecord`, with the values of `SeverityNumber`.
pub(super) mod log_record {
    pub(in super::super) const TIME: u32 = 1;
    pub(in super::super) const SEVERITY_NUMBER: u32 = 2;
    pub(in super::super) const SEVERITY_TEXT: u32 = 3;
    pub(in super::super) const BODY: u32 = 5;
    pub(in super::super) const ATTRIBUTES: u32 = 6;
    pub(in super::super) const OBSERVED_TIME: u32 = 11;
    pub(in super::super) const EVENT_NAME: u32 = 12;

    pub(in super::super) const SEVERITY_INFO: u64 = 9;
    pub(in super::super) const SEVERITY_WARN: u64 = 13;
}

/// Fields of the message `Metric`.
pub(super) mod metric {
    pub(in super::super) const NAME: u32 = 1;
    pub(in super::super) const UNIT: u32 = 3;
    pub(in super::super) const GAUGE: u32 = 5;
    pub(in super::super) const HISTOGRAM: u32 = 9;
}

/// `Gauge` and `Histogram`, with the value of `AggregationTemporality`.
pub(super) mod data {
    pub(in super::super) const POINTS: u32 = 1;
    pub(in super::super) const AGGREGATION_TEMPORALITY: u32 = 2;

    pub(in super::super) const DELTA: u64 = 1;
}

/// `NumberDataPoint` and `HistogramDataPoint`: the fields that both have.
pub(super) mod point {
    pub(in super::super) const START_TIME: u32 = 2;
    pub(in super::super) const TIME: u32 = 3;
}

/// Fields of the message `NumberDataPoint`.
pub(super) mod number_point {
    pub(in super::super) const AS_DOUBLE: u32 = 4;
    pub(in super::super) const ATTRIBUTES: u32 = 7;
}

/// Fields of the message `HistogramDataPoint`.
pub(super) mod histogram_point {
    pub(in super::super) const COUNT: u32 = 4;
    pub(in super::super) const SUM: u32 = 5;
    pub(in super::super) const ATTRIBUTES: u32 = 9;
    pub(in super::super) const MIN: u32 = 11;
    pub(in super::super) const MAX: u32 = 12;
}
