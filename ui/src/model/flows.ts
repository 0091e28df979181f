import type { Flow } from '../api/types';

type Value = (flow: Flow) => number | null;

const VALUES: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['latency', (flow) => flow.flow_latency],
  ['reports', (flow) => flow.reports],
  ['last_seen', (flow) => flow.last_seen],
]);

/**
 * Flows by the value that is shown, greatest first. The server chooses them by a copy of all flows, which may be some seconds older
 * than their values.
 */
export function inOrder(flows: readonly Flow[], sort: string): Flow[] {
  const value = VALUES.get(sort);
  if (!value) return [...flows];
  return [...flows].sort((one, other) => (value(other) ?? -1) - (value(one) ?? -1));
}
