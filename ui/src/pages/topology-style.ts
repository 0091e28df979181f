import { plural } from '../lib/format';
import { colour } from '../lib/theme';
import { hostNames, type Hosts } from '../model/hosts';
import { brightness, mix } from '../model/ramp';
import type { Item, Line, Outline, Scene } from '../model/scene';
import {
  edgeId,
  edgeValue,
  isBad,
  most,
  nodeValues,
  place,
  type Graph,
  type MapMetric,
  type Scale,
} from '../model/topology';
import { metricText } from './topology-legend';

export type Selection = { node: number } | { from: number; to: number } | { group: string };

export interface Picture {
  graph: Graph;
  metric: MapMetric;
  path: readonly (number | null)[] | null;
  selected: Selection | null;
  /** Nodes that were searched for. */
  matches: ReadonlySet<number>;
  /** Paths that are drawn over the map, instead of the one that is followed. */
  overlays?: readonly Overlay[];
  hosts: Hosts;
  hostName(address: string): string;
}

/** A path over the map. */
export interface Overlay {
  path: readonly (number | null)[];
  /** How it is drawn, and with it the nodes and links that only it has. */
  look: 'before' | 'after';
}

/** How an item looks, apart from where and how large it is. */
export interface ItemLook {
  item: Item;
  fill: string;
  ink: string;
  /** What is written inside, the most important first. */
  texts: string[];
  /** The first text where that does not fit: without the name of the group. */
  short: string;
  hosts: string[];
  faded: boolean;
  selected: boolean;
  match: boolean;
  /** The one overlay that has it. */
  only: Overlay['look'] | null;
  /** Which labels get room first: the least. */
  order: number;
}

export interface LineLook {
  line: Line;
  /** What is written beside it; empty: nothing. */
  text: string;
}

/** Lines that one stroke of the pen draws. */
export interface Stroke {
  colour: string;
  width: number;
  opacity: number;
  selected: boolean;
  lines: LineLook[];
}

/** A path that is drawn over the lines, from item to item. */
export interface Route {
  look: Overlay['look'];
  colour: string;
  items: Item[];
}

/** A scene in colours. */
export interface Looks {
  scene: Scene;
  items: ItemLook[];
  outlines: { outline: Outline; text: string; selected: boolean }[];
  /** In the order in which they are drawn. */
  strokes: Stroke[];
  routes: Route[];
  theme: Theme;
}

interface Theme {
  panel: string;
  raised: string;
  line: string;
  text: string;
  muted: string;
  accent: string;
  grey: string;
  before: string;
  after: string;
}

/** What all parts of a drawing need. */
interface Brush extends Picture {
  values: Map<number, number | null>;
  names: ReadonlyMap<number, string>;
  /** Of the open group of a node. */
  groupNames: ReadonlyMap<number, string>;
  grouped: boolean;
  scale: Scale;
  compact: boolean;
  theme: Theme;
  fill(value: number | null): string;
  onPath: { nodes: ReadonlySet<number>; edges: ReadonlySet<string> } | null;
}

const INK = { dark: '#0b1016', light: '#f4f7fa' };
const FADED = 0.16;
const QUIET = 0.55;
/** Colours between the ends of the scale: few, so that one stroke draws many lines. */
const STEPS = 24;

export function looksOf(scene: Scene, picture: Picture, scale: Scale, compact: boolean): Looks {
  const theme = themeNow();
  const ramp = rampNow();
  const fill = (value: number | null): string => {
    const at = place(scale, value);
    return at === null ? theme.grey : (ramp[Math.round(at * (STEPS - 1))] ?? theme.grey);
  };
  const values = nodeValues(picture.graph, picture.metric);
  const names = new Map(picture.graph.nodes.map(({ id, name }) => [id, name]));
  const groupNames = new Map(
    scene.outlines.flatMap(({ group }) => group.members.map((id) => [id, group.name] as const)),
  );
  const grouped = scene.outlines.length > 0 || scene.items.some(({ group }) => group !== null);
  const words = { names, groupNames, grouped };
  const brush: Brush = { ...picture, ...words, values, scale, compact, theme, fill, onPath: pathOf(picture) };
  return {
    scene,
    items: scene.items.map((item) => itemLook(item, brush)).sort((a, b) => a.order - b.order),
    outlines: scene.outlines.map((outline) => {
      const { id, name, members } = outline.group;
      const text = [name, groupNote(members, brush)].join(' · ');
      return { outline, text, selected: isSelected(picture.selected, id) };
    }),
    strokes: strokesOf(scene, brush),
    routes: (picture.overlays ?? []).map((overlay) => routeOf(scene, overlay, theme)),
    theme,
  };
}

/** An unknown node is passed over: the line goes on to the next one that is known. */
function routeOf(scene: Scene, { path, look }: Overlay, theme: Theme): Route {
  const items: Item[] = [];
  for (const node of path) {
    const item = node === null ? undefined : scene.itemOf.get(node);
    if (item && item !== items[items.length - 1]) items.push(item);
  }
  return { look, colour: theme[look], items };
}

function themeNow(): Theme {
  return {
    panel: colour('panel'),
    raised: colour('raised'),
    line: colour('line'),
    text: colour('text'),
    muted: colour('muted'),
    accent: colour('accent'),
    grey: colour('unknown'),
    before: colour('before'),
    after: colour('after'),
  };
}

function rampNow(): string[] {
  const stops = [1, 2, 3, 4, 5].map((step) => colour(`ramp-${step}`));
  return Array.from({ length: STEPS }, (_, i) => mix(stops, i / (STEPS - 1)) ?? '');
}

function isSelected(selected: Selection | null, group: string): boolean {
  return selected !== null && 'group' in selected && selected.group === group;
}

/** How many nodes a group has, and how many are bad. */
export function groupNote(members: readonly number[], brush: Pick<Brush, 'values' | 'scale'>): string {
  const bad = members.filter((id) => isBad(brush.scale, brush.values.get(id) ?? null)).length;
  return plural(members.length, 'node') + (bad === 0 ? '' : `, ${bad} bad`);
}

function itemLook(item: Item, brush: Brush): ItemLook {
  const { selected, onPath, matches } = brush;
  const value = most(item.members.map((id) => brush.values.get(id) ?? null));
  const faded = onPath !== null && !item.members.some((id) => onPath.nodes.has(id));
  const fill = faded ? brush.theme.raised : brush.fill(value);
  const ink = brightness(fill) > 105 ? INK.dark : INK.light;
  const isIt = item.group
    ? isSelected(selected, item.group.id)
    : selected !== null && 'node' in selected && selected.node === item.node;
  const match = matches.size > 0 && item.members.some((id) => matches.has(id));
  const urgent = isIt ? 3 : match || (onPath !== null && !faded) ? 2 : item.group ? 1 : 0;
  return {
    item,
    fill,
    ink: faded ? brush.theme.muted : ink,
    texts: textsOf(item, value, brush),
    short: shortName(item, brush),
    hosts: item.node === null ? [] : hostNames(brush.hosts.get(item.node) ?? [], brush.hostName),
    faded,
    selected: isIt,
    match,
    only: onlyOne(item, brush.overlays ?? []),
    order: -urgent - (place(brush.scale, value) ?? 0),
  };
}

function onlyOne(item: Item, overlays: readonly Overlay[]): Overlay['look'] | null {
  if (overlays.length < 2) return null;
  const having = overlays.filter(({ path }) => item.members.some((id) => path.includes(id)));
  return having.length === 1 ? (having[0]?.look ?? null) : null;
}

function textsOf(item: Item, value: number | null, brush: Brush): string[] {
  const text = metricText(brush.metric, value);
  if (item.group) return [item.group.name, text, groupNote(item.members, brush)];
  const id = String(item.node);
  const name = nameOf(item, brush);
  return [brush.compact || brush.grouped || name === id ? name : `${id} · ${name}`, text];
}

function nameOf({ node, group }: Item, { names }: Brush): string {
  return group?.name ?? (node === null ? '' : (names.get(node) ?? String(node)));
}

/** `leaf3` of `pod17-leaf3`, in an open group with the name `pod17`. */
function shortName(item: Item, brush: Brush): string {
  const name = nameOf(item, brush);
  const group = item.node === null ? undefined : brush.groupNames.get(item.node);
  return group !== undefined && name.startsWith(group)
    ? name.slice(group.length).replace(/^[-_./ ]+/, '') || name
    : name;
}

/** Nodes and links of the followed path; null when none is followed. */
function pathOf({ path, overlays }: Picture): Brush['onPath'] {
  const paths = overlays?.map((overlay) => overlay.path) ?? (path ? [path] : []);
  if (paths.every((one) => one.length === 0)) return null;
  const nodes = new Set<number>();
  const edges = new Set<string>();
  for (const one of paths)
    one.forEach((node, i) => {
      if (node === null) return;
      nodes.add(node);
      const next = one[i + 1];
      if (next !== null && next !== undefined) edges.add(edgeId(node, next));
    });
  return { nodes, edges };
}

/** Lines of one colour and width together: first what is faded, then by value, what matters last and so on top. */
function strokesOf(scene: Scene, brush: Brush): Stroke[] {
  const flowsOf = (line: Line): number => line.edges.reduce((sum, { link }) => sum + (link.flows ?? 0), 0);
  const mostFlows = scene.lines.reduce((least, line) => Math.max(least, flowsOf(line)), 1);
  // Between many groups, lines must not hide what they connect.
  const quiet = brush.grouped;
  const thin = quiet ? 0.75 : 1.5;
  const found = new Map<string, Stroke & { order: number }>();
  for (const line of scene.lines) {
    const value = most(line.edges.map(({ link }) => edgeValue(link, brush.metric)));
    const on = brush.onPath !== null && line.edges.some(({ id }) => brush.onPath?.edges.has(id));
    const selected = line.edges.some((edge) => isSelectedEdge(brush.selected, edge.from, edge.to));
    const opacity =
      on || selected ? 1 : brush.onPath ? FADED : quiet && !isBad(brush.scale, value) ? QUIET : 1;
    const tint = brush.fill(value);
    // Halves of a pixel: few widths, so few strokes.
    const width = Math.round((thin + 3 * thin * Math.sqrt(flowsOf(line) / mostFlows)) * 2) / 2;
    const key = [tint, width, opacity, on, selected].join();
    const order = (selected ? 20 : 0) + (on ? 10 : 0) + opacity + (place(brush.scale, value) ?? -0.1);
    const stroke = found.get(key) ?? { colour: tint, width, opacity, selected, lines: [], order };
    found.set(key, stroke);
    stroke.lines.push({
      line,
      text: (on && !brush.overlays) || selected ? metricText(brush.metric, value) : '',
    });
  }
  return [...found.values()].sort((a, b) => a.order - b.order);
}

function isSelectedEdge(selected: Selection | null, from: number, to: number): boolean {
  return selected !== null && 'from' in selected && selected.from === from && selected.to === to;
}
