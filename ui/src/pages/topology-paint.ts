import type { Core, EdgeSingular, NodeSingular, StylesheetJson } from 'cytoscape';
import { colour } from '../lib/theme';
import { brightness, mix } from '../model/ramp';
import {
  edgeId,
  edgeValue,
  nodeValue,
  place,
  type Graph,
  type GraphEdge,
  type GraphNode,
  type MapMetric,
  type Scale,
} from '../model/topology';
import { metricText } from './topology-legend';

export type Selection = { node: number } | { from: number; to: number };

export interface Picture {
  graph: Graph;
  metric: MapMetric;
  path: (number | null)[] | null;
  selected: Selection | null;
}

export interface Look {
  compact: boolean;
  tiered: boolean;
}

/** Properties of each element for one drawing. */
interface Brush extends Look {
  metric: MapMetric;
  fill(value: number | null): string;
  on: ReadonlySet<string> | null;
  selected: Selection | null;
}

const INK = { dark: '#0b1016', light: '#f4f7fa' };

/** Colours, widths, labels and highlights of a picture. */
export function paint(cy: Core, picture: Picture, scale: Scale, look: Look): void {
  const { graph, metric, selected } = picture;
  const stops = [1, 2, 3, 4, 5].map((step) => colour(`ramp-${step}`));
  const grey = colour('unknown');
  const fill = (value: number | null): string => mix(stops, place(scale, value)) ?? grey;
  const brush: Brush = { ...look, metric, selected, fill, on: highlighted(picture) };
  const most = Math.max(1, ...graph.edges.map((edge) => edge.link.flows ?? 0));
  for (const entry of graph.nodes) {
    paintNode(cy.getElementById(`n${entry.id}`), entry, nodeValue(entry, graph, metric), brush);
  }
  for (const edge of graph.edges) paintEdge(cy.getElementById(`e${edge.id}`), edge, most, brush);
}

function paintNode(element: NodeSingular, entry: GraphNode, value: number | null, brush: Brush): void {
  const id = String(entry.id);
  const name = brush.compact || entry.name === id ? entry.name : `${id} · ${entry.name}`;
  const fill = brush.fill(value);
  change(element, {
    colour: fill,
    width: brush.compact ? 66 : 112,
    ink: brightness(fill) > 105 ? INK.dark : INK.light,
    label: `${name}\n${metricText(brush.metric, value)}`,
  });
  const { on, selected } = brush;
  element.toggleClass('faded', on !== null && !on.has(element.id()));
  element.toggleClass('selected', selected !== null && 'node' in selected && selected.node === entry.id);
}

function paintEdge(element: EdgeSingular, edge: GraphEdge, most: number, brush: Brush): void {
  const value = edgeValue(edge.link, brush.metric);
  const text = metricText(brush.metric, value);
  change(element, {
    colour: brush.fill(value),
    width: 1.5 + 4.5 * Math.sqrt((edge.link.flows ?? 0) / most),
    // In tiers links cross in the middle; beside its node a value is not mistaken for another link's.
    near: brush.tiered ? text : '',
    middle: brush.tiered ? '' : text,
  });
  const { on, selected } = brush;
  element.toggleClass('faded', on !== null && !on.has(element.id()));
  element.toggleClass('on-path', on?.has(element.id()) ?? false);
  element.toggleClass(
    'selected',
    selected !== null && 'from' in selected && selected.from === edge.from && selected.to === edge.to,
  );
}

/** Sets only data that differ: each change makes the map recompute an element's style. */
function change(
  element: NodeSingular | EdgeSingular,
  values: Readonly<Record<string, string | number>>,
): void {
  for (const [name, value] of Object.entries(values))
    if (element.data(name) !== value) element.data(name, value);
}

/** Nodes and links of the followed path; null when none is followed. */
function highlighted({ path }: Picture): Set<string> | null {
  if (!path || path.length === 0) return null;
  const on = new Set<string>();
  path.forEach((node, i) => {
    if (node === null) return;
    on.add(`n${node}`);
    const next = path[i + 1];
    if (next !== null && next !== undefined) on.add(`e${edgeId(node, next)}`);
  });
  return on;
}

/** The map's style sheet in the theme's colours. */
export function styles(): StylesheetJson {
  return [
    {
      // Elements are drawn only when they have their data.
      selector: 'node[colour]',
      style: {
        width: 'data(width)',
        height: 48,
        shape: 'round-rectangle',
        'background-color': 'data(colour)',
        'border-width': 2,
        'border-color': colour('panel'),
        label: 'data(label)',
        color: 'data(ink)',
        'font-family': 'system-ui, sans-serif',
        'font-size': 13,
        'font-weight': 600,
        'text-wrap': 'wrap',
        'text-max-width': '104px',
        'text-overflow-wrap': 'anywhere',
        'text-valign': 'center',
        'text-halign': 'center',
        'line-height': 1.3,
      },
    },
    {
      selector: 'edge[colour]',
      style: {
        width: 'data(width)',
        'line-color': 'data(colour)',
        'target-arrow-color': 'data(colour)',
        'target-arrow-shape': 'triangle',
        'arrow-scale': 0.8,
        'curve-style': 'bezier',
        'control-point-step-size': 16,
      },
    },
    { selector: 'edge.faded', style: { opacity: 0.16 } },
    { selector: 'node.faded', style: { 'background-color': colour('raised'), color: colour('muted') } },
    {
      selector: 'edge.on-path, edge.selected',
      style: {
        label: 'data(middle)',
        'source-label': 'data(near)',
        'source-text-offset': 62,
        color: colour('text'),
        'font-family': 'system-ui, sans-serif',
        'font-size': 12,
        'text-background-color': colour('panel'),
        'text-background-opacity': 1,
        'text-background-padding': '3px',
      },
    },
    { selector: 'edge.on-path', style: { 'z-index': 10 } },
    { selector: 'node.selected', style: { 'border-color': colour('text'), 'border-width': 3 } },
    {
      selector: 'edge.selected',
      style: { 'underlay-color': colour('text'), 'underlay-opacity': 0.35, 'underlay-padding': 4 },
    },
  ] as StylesheetJson;
}
