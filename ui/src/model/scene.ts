import { type Fabric, type Group } from './fabric';
import type { Arrangement } from './layout';
import type { Graph, GraphEdge } from './topology';

/** A rectangle around its centre. */
export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** A node, or a group that is closed. */
export interface Item extends Box {
  node: number | null;
  group: Group | null;
  members: readonly number[];
  /** Hosts are drawn below it. */
  edge: boolean;
}

/** The outline of a group that is open. */
export interface Outline extends Box {
  group: Group;
}

/** All links from one item to another. */
export interface Line {
  from: Item;
  to: Item;
  edges: GraphEdge[];
  /** There are links back as well: both are drawn beside each other. */
  back: boolean;
}

export interface Scene {
  items: Item[];
  outlines: Outline[];
  lines: Line[];
  itemOf: ReadonlyMap<number, Item>;
  /** Links run between layers, so that values are drawn beside the node that sends. */
  layered: boolean;
  bounds: Box;
}

const NODE = { w: 112, h: 48 };
const SMALL_NODE = { w: 66, h: 48 };
const GROUP = { w: 158, h: 64 };
/** Between nodes of one row, between rows, below a row with hosts, between layers. */
const GAP = { x: 14, y: 22, hosts: 48, layers: 44 };
/** Around the nodes of an open group; its name is in the room on top. */
const MARGIN = { x: 18, top: 34, bottom: 16 };
/** Between groups. */
const APART = { x: 32, y: 56, bands: 90 };

/** A small network: every node where the arrangement has it. */
export function plainScene(
  graph: Graph,
  { shape, positions }: Arrangement,
  look: { compact: boolean; squeeze: number; stretch: number },
): Scene {
  const lowest = Math.max(...[...positions.values()].map(({ y }) => y));
  const items = graph.nodes.map(({ id }): Item => {
    const { x, y } = positions.get(id) ?? { x: 0, y: 0 };
    const size = look.compact ? SMALL_NODE : NODE;
    const edge = shape !== 'tiers' || y === lowest;
    return { x: x * look.squeeze, y: y * look.stretch, ...size, node: id, group: null, members: [id], edge };
  });
  return finish(graph, items, [], shape === 'tiers');
}

/** A large network: groups, each closed, or open with its nodes in layers. Fills a box of this aspect ratio (width to height). */
export function groupedScene(graph: Graph, fabric: Fabric, open: ReadonlySet<string>, aspect: number): Scene {
  const blocks = fabric.groups.map((group) =>
    open.has(group.id) ? openBlock(group, fabric) : closedBlock(group),
  );
  let top = 0;
  for (const band of bestRows(bands(blocks), aspect)) {
    for (const row of band) {
      place(row, top);
      top += heightOf(row) + APART.y;
    }
    top += APART.bands - APART.y;
  }
  return finish(
    graph,
    blocks.flatMap(({ items }) => items),
    blocks.flatMap(({ outline }) => outline ?? []),
    true,
  );
}

/** A group with what is in it, relative to its centre until it is placed. */
interface Block {
  group: Group;
  w: number;
  h: number;
  items: Item[];
  outline: Outline | null;
}

function closedBlock(group: Group): Block {
  const item = { x: 0, y: 0, ...GROUP, node: null, group, members: group.members, edge: false };
  return { group, ...GROUP, items: [item], outline: null };
}

function openBlock(group: Group, { layers }: Fabric): Block {
  const rows = rowsOf(group, layers);
  const most = Math.max(...rows.map(({ ids }) => ids.length));
  const w = most * (NODE.w + GAP.x) - GAP.x + 2 * MARGIN.x;
  const heights = rows.map(({ edge, last }) => NODE.h + (edge ? GAP.hosts : last ? GAP.layers : GAP.y));
  const h = heights.reduce((sum, height) => sum + height, MARGIN.top + MARGIN.bottom);
  let top = MARGIN.top - h / 2;
  const items = rows.flatMap(({ ids, edge }, i) => {
    const y = top + NODE.h / 2;
    top += heights[i] ?? 0;
    return ids.map((id, column): Item => {
      const x = (column - (ids.length - 1) / 2) * (NODE.w + GAP.x);
      return { x, y, ...NODE, node: id, group: null, members: [id], edge };
    });
  });
  return { group, w, h, items, outline: { x: 0, y: 0, w, h, group } };
}

interface Row {
  ids: number[];
  /** At the edge of the network. */
  edge: boolean;
  /** The last row of its layer. */
  last: boolean;
}

/** The nodes of a group by layer, the highest first; a long layer in rows of about equal length. */
function rowsOf(group: Group, layers: ReadonlyMap<number, number>): Row[] {
  const levels = [...new Set(group.members.map((id) => layers.get(id) ?? 0))].sort((a, b) => b - a);
  return levels.flatMap((level) => {
    const ids = group.members.filter((id) => (layers.get(id) ?? 0) === level);
    const rows = Math.ceil(ids.length / Math.max(8, Math.ceil(Math.sqrt(6 * ids.length))));
    const length = Math.ceil(ids.length / rows);
    return Array.from({ length: rows }, (_, i) => ({
      ids: ids.slice(i * length, (i + 1) * length),
      edge: level === 0,
      last: i === rows - 1,
    })).filter((row) => row.ids.length > 0);
  });
}

/** One band for each upper layer, one for all pods. */
function bands(blocks: readonly Block[]): Block[][] {
  const found = new Map<number, Block[]>();
  for (const block of blocks) {
    const key = block.group.upper ? block.group.layer : -1;
    found.set(key, [...(found.get(key) ?? []), block]);
  }
  return [...found].sort(([a], [b]) => b - a).map(([, band]) => band);
}

/** The width at which the picture is largest in its box. */
function bestRows(all: readonly Block[][], aspect: number): Block[][][] {
  const blocks = all.flat();
  const area = blocks.reduce((sum, { w, h }) => sum + (w + APART.x) * (h + APART.y), 0);
  const widest = Math.max(0, ...blocks.map(({ w }) => w));
  let best: { side: number; inRows: Block[][][] } = { side: Infinity, inRows: [] };
  for (let part = 0.6; part < 2; part += 0.1) {
    const inRows = all.map((band) => rowsOfBlocks(band, Math.max(widest, Math.sqrt(area * aspect) * part)));
    const used = Math.max(0, ...inRows.flat().map(widthOf));
    const high = inRows.flat().reduce((sum, row) => sum + heightOf(row) + APART.y, 0);
    const side = Math.max(used, (high + all.length * (APART.bands - APART.y)) * aspect);
    if (side < best.side) best = { side, inRows };
  }
  return best.inRows;
}

function widthOf(row: readonly Block[]): number {
  return row.reduce((sum, { w }) => sum + w + APART.x, -APART.x);
}

function heightOf(row: readonly Block[]): number {
  return Math.max(...row.map(({ h }) => h));
}

/** Blocks in their order, as many side by side as fit. */
function rowsOfBlocks(blocks: readonly Block[], width: number): Block[][] {
  const found: Block[][] = [];
  let used = Infinity;
  for (const block of blocks) {
    const row = found[found.length - 1];
    if (row && used + APART.x + block.w <= width) {
      row.push(block);
      used += APART.x + block.w;
    } else {
      found.push([block]);
      used = block.w;
    }
  }
  return found;
}

/** Side by side, centred, with their upper sides at `top`. */
function place(row: readonly Block[], top: number): void {
  let left = -widthOf(row) / 2;
  for (const { w, h, items, outline } of row) {
    for (const box of outline ? [...items, outline] : items) {
      box.x += left + w / 2;
      box.y += top + h / 2;
    }
    left += w + APART.x;
  }
}

function finish(graph: Graph, items: Item[], outlines: Outline[], layered: boolean): Scene {
  const itemOf = new Map(items.flatMap((item) => item.members.map((id) => [id, item] as const)));
  return { items, outlines, lines: linesOf(graph, itemOf), itemOf, layered, bounds: around(items, outlines) };
}

function linesOf(graph: Graph, itemOf: ReadonlyMap<number, Item>): Line[] {
  const lines = new Map<Item, Map<Item, Line>>();
  for (const edge of graph.edges) {
    const [from, to] = [itemOf.get(edge.from), itemOf.get(edge.to)];
    if (!from || !to || from === to) continue;
    const leaving = lines.get(from) ?? new Map<Item, Line>();
    lines.set(from, leaving);
    const line = leaving.get(to);
    if (line) line.edges.push(edge);
    else leaving.set(to, { from, to, edges: [edge], back: false });
  }
  const all = [...lines.values()].flatMap((leaving) => [...leaving.values()]);
  for (const line of all) line.back = lines.get(line.to)?.has(line.from) ?? false;
  return all;
}

/** Room for hosts below the lowest row. */
const HOSTS = 36;

function around(items: readonly Item[], outlines: readonly Outline[]): Box {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const include = ({ x, y, w, h }: Box, below: number): void => {
    [left, right] = [Math.min(left, x - w / 2), Math.max(right, x + w / 2)];
    [top, bottom] = [Math.min(top, y - h / 2), Math.max(bottom, y + h / 2 + below)];
  };
  for (const item of items) include(item, item.edge ? HOSTS : 0);
  for (const outline of outlines) include(outline, 0);
  if (left > right) return { x: 0, y: 0, w: 0, h: 0 };
  return { x: (left + right) / 2, y: (top + bottom) / 2, w: right - left, h: bottom - top };
}
