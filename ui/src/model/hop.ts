import type { FlowHop } from '../api/types';
import { duration } from '../lib/format';

/** Whether the hop latency of the latest report is implausible: it is shown, and used nowhere. */
export function isImplausible(hop: FlowHop): boolean {
  return hop.implausible_latency !== undefined && hop.implausible_latency !== null;
}

/** The hop latency, with a mark if it is implausible. */
export function latencyText(hop: FlowHop): string {
  const text = duration(hop.hop_latency ?? hop.implausible_latency ?? null);
  return isImplausible(hop) ? `${text} implausible` : text;
}
