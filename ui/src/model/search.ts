import { natural } from './fabric';
import type { Hosts } from './hosts';
import type { GraphNode } from './topology';

/**
 * Nodes whose id or name contains the text, or at which a host is whose address or name does. Whole ones first, then
 * those that begin with it.
 */
export function search(
  nodes: readonly GraphNode[],
  hosts: Hosts,
  text: string,
  hostName: (address: string) => string,
): number[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return [];
  const rank = (words: readonly string[]): number =>
    Math.min(
      ...words.map((word) => {
        const at = word.toLowerCase().indexOf(wanted);
        return at < 0 ? Infinity : word.length === wanted.length ? 0 : at === 0 ? 1 : 2;
      }),
    );
  const found = nodes.map(({ id, name }) => {
    const own = rank([String(id), name]);
    const theirs = (hosts.get(id) ?? []).map((address) => rank([address, hostName(address)]) + 3);
    return { id, name, rank: Math.min(own, ...theirs) };
  });
  return found
    .filter((one) => one.rank < Infinity)
    .sort((a, b) => a.rank - b.rank || natural(a.name, b.name) || a.id - b.id)
    .map(({ id }) => id);
}
