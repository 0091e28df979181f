import type { Flow } from '../api/types';
import { natural } from './fabric';

/** Addresses of the hosts at each node: those whose flows begin or end there. */
export type Hosts = ReadonlyMap<number, string[]>;

/** The latest flows say where a host is; a path that is cut off does not. */
export function hostsOf(flows: readonly Flow[]): Hosts {
  const nodeOf = new Map<string, number>();
  const latest = [...flows].sort((a, b) => b.last_seen - a.last_seen);
  for (const { flow, path, truncated, incomplete } of latest) {
    if (truncated || incomplete === true) continue;
    const [first, last] = [path[0], path[path.length - 1]];
    if (first !== null && first !== undefined && !nodeOf.has(flow.src)) nodeOf.set(flow.src, first);
    if (last !== null && last !== undefined && !nodeOf.has(flow.dst)) nodeOf.set(flow.dst, last);
  }
  const hosts = new Map<number, string[]>();
  for (const [address, node] of nodeOf) hosts.set(node, [...(hosts.get(node) ?? []), address]);
  for (const addresses of hosts.values()) addresses.sort(natural);
  return hosts;
}

/** What hosts are called; one with several addresses once. */
export function hostNames(addresses: readonly string[], nameOf: (address: string) => string): string[] {
  return [...new Set(addresses.map(nameOf))];
}
