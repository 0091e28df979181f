import { natural, type Fabric, type Group } from './fabric';
import { isBad, most, type Graph, type Scale } from './topology';

/** A row of the list beside the map: a closed group, or a node. */
export interface Ranked {
  node: number | null;
  group: Group | null;
  name: string;
  /** The worst of its nodes. */
  value: number | null;
  /** Nodes that are bad. */
  bad: number;
}

/** What the map shows, worst first. */
export function ranking(
  graph: Graph,
  fabric: Fabric | null,
  open: ReadonlySet<string>,
  values: ReadonlyMap<number, number | null>,
  scale: Scale,
): Ranked[] {
  const valueOf = (id: number): number | null => values.get(id) ?? null;
  const badOf = (ids: readonly number[]): number => ids.filter((id) => isBad(scale, valueOf(id))).length;
  const closed = (fabric?.groups ?? []).filter(({ id }) => !open.has(id));
  const hidden = new Set(closed.flatMap(({ members }) => members));
  const rows = [
    ...closed.map((group): Ranked => {
      const value = most(group.members.map(valueOf));
      return { node: null, group, name: group.name, value, bad: badOf(group.members) };
    }),
    ...graph.nodes
      .filter(({ id }) => !hidden.has(id))
      .map(({ id, name }): Ranked => ({ node: id, group: null, name, value: valueOf(id), bad: badOf([id]) })),
  ];
  return rows.sort((a, b) => (b.value ?? -1) - (a.value ?? -1) || b.bad - a.bad || natural(a.name, b.name));
}
