/** Names that the pages use for the types of `/api/v1`. */

import type { History, HistoryPoint as StoredPoint, Rows, Stage } from './generated';

export type {
  Activity,
  Alert,
  Alerts,
  Burst,
  Drops as DropsOfPlace,
  Event as TelemetryEvent,
  Flow as FlowKey,
  Firing,
  FlowDetail,
  FlowState as Flow,
  Heat,
  HeatRow,
  Hop as FlowHop,
  HopLatencies,
  Input,
  LatencySpread,
  Link,
  LinkLoss,
  LossMap,
  FileProblem,
  NamedCounts as Drops,
  Names,
  Node,
  PathChange,
  PathChanges,
  PathUse,
  PathUses,
  PathsOfDirection,
  Queue,
  Range,
  RatesThen,
  ReporterLoss as LostReports,
  Rollup,
  RuleEnabled,
  Silence,
  Silences,
  Source,
  Spread,
  Status,
  Store as StoreStatus,
  Table as TableFill,
  Traffic,
  TrafficRow,
  Trial,
  UsedPath,
} from './generated';

/** `unit`, `queued` and `evidence` may be absent, as in responses of older servers. */
export type BudgetStage = Omit<Stage, 'unit' | 'queued' | 'evidence'> &
  Partial<Pick<Stage, 'unit' | 'queued' | 'evidence'>>;

/** A stored point, or a live sample, which may lack latencies. */
export type HistoryPoint = Pick<StoredPoint, 'ts' | 'flow_latency'> & {
  hops: { node: number | null; latency: number | null }[];
};

export type FlowHistory = Pick<History, 'paths'> & { series: HistoryPoint[] };

export type Cell = string | number | boolean | null;

export type QueryResult = Omit<Rows, 'rows'> & { rows: Cell[][] };
