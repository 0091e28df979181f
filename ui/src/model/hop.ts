import type { FlowDetail, FlowHop } from '../api/types';
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

/** The part of a latency from end to end that is none of the hops': time on links, ns. Null if a hop's latency is not known. */
export function linkLatency({ flow_latency, basis, hops }: FlowDetail): number | null {
  if (flow_latency === null || (basis !== 'measured' && basis !== 'corrected') || hops.length === 0)
    return null;
  const nodes = hops.reduce<number | null>(
    (sum, { hop_latency }) => (sum === null || hop_latency === null ? null : sum + hop_latency),
    0,
  );
  // Less than nothing: the values are of different packets.
  return nodes === null || nodes > flow_latency ? null : flow_latency - nodes;
}
