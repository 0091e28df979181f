import cytoscape, { type Core, type ElementDefinition } from 'cytoscape';
import type { PathUse } from '../api/types';
import { h } from '../lib/dom';
import { onTheme } from '../lib/theme';
import { arrange, type Arrangement, type Positions } from '../model/layout';
import { edgeValue, nodeValue, scaleFor, type Graph, type MapMetric, type Scale } from '../model/topology';
import { paint, styles, type Selection, type Picture } from './topology-paint';

const PADDING = 34;
const LARGEST_ZOOM = 1.45;
/** Narrower than this, nodes show their number only and stand closer. */
const COMPACT_BELOW = 560;

/** The drawing of the network. */
export class TopologyCanvas {
  readonly element: HTMLElement;
  private readonly cy: Core;
  private readonly scales = new Map<MapMetric, Scale>();
  private readonly observer = new ResizeObserver(() => this.resized());
  private readonly endTheme: () => void;
  private shape = '';
  private arranged: Arrangement = { shape: 'free', positions: new Map() };
  private last: Picture | null = null;

  constructor(select: (selected: Selection | null) => void) {
    this.element = h('div', { class: 'canvas', role: 'application', tabindex: '0' });
    this.element.setAttribute('aria-label', 'Map of the network. Arrow keys go from node to node.');
    this.cy = cytoscape({
      container: this.element,
      style: styles(),
      layout: { name: 'preset' },
      minZoom: 0.1,
      maxZoom: 3,
      selectionType: 'single',
    });
    listen(this.cy, select);
    keyboard(this.element, this.cy, select, () => this.last?.selected ?? null);
    this.observer.observe(this.element);
    this.endTheme = onTheme(() => {
      this.cy.style(styles());
      this.redraw();
    });
  }

  /** Arranges nodes, only if nodes or links were added or removed, so that the picture does not move. */
  arrange(graph: Graph, paths: readonly PathUse[]): void {
    const shape = [...graph.nodes.map(({ id }) => id), ...graph.edges.map(({ id }) => id)].join();
    if (shape === this.shape) return;
    this.shape = shape;
    sync(this.cy, graph);
    this.arranged = arrange(graph, paths);
    this.fit();
  }

  /** Colours, widths, highlights. Returns the scale that was used. */
  draw(picture: Picture): Scale {
    this.last = picture;
    const { graph, metric } = picture;
    const ofNodes = graph.nodes.map((node) => nodeValue(node, graph, metric));
    const ofEdges = graph.edges.map((edge) => edgeValue(edge.link, metric));
    const scale = scaleFor(metric, [...ofNodes, ...ofEdges], this.scales.get(metric) ?? null);
    this.scales.set(metric, scale);
    const look = { compact: this.isCompact(), tiered: this.arranged.shape === 'tiers' };
    this.cy.batch(() => paint(this.cy, picture, scale, look));
    return scale;
  }

  /** Positions all nodes inside the box; tiers are drawn apart so that the picture fills it. */
  fit(): void {
    const { positions, shape } = this.arranged;
    const squeeze = this.isCompact() ? 0.55 : 1;
    const stretch = shape === 'tiers' ? stretchFor(this.element, positions, squeeze) : 1;
    this.cy.nodes().positions((node) => {
      const point = positions.get(Number(node.data('node'))) ?? { x: 0, y: 0 };
      return { x: point.x * squeeze, y: point.y * stretch };
    });
    this.cy.fit(undefined, PADDING);
    if (this.cy.zoom() > LARGEST_ZOOM) this.cy.zoom(LARGEST_ZOOM);
    this.cy.center();
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
    this.cy.destroy();
  }

  private isCompact(): boolean {
    const { clientWidth } = this.element;
    return clientWidth > 0 && clientWidth < COMPACT_BELOW;
  }

  private resized(): void {
    this.cy.resize();
    this.fit();
    this.redraw();
  }

  private redraw(): void {
    if (this.last) this.draw(this.last);
  }
}

/** Factor on the distance of tiers that gives the picture the aspect ratio of its box. */
function stretchFor(box: HTMLElement, positions: Positions, squeeze: number): number {
  const points = [...positions.values()];
  const extent = (values: number[]): number => Math.max(...values) - Math.min(...values);
  const width = extent(points.map(({ x }) => x)) * squeeze + 120;
  const height = extent(points.map(({ y }) => y));
  if (height === 0 || box.clientWidth === 0) return 1;
  return Math.min(2, Math.max(0.7, ((width * box.clientHeight) / box.clientWidth - 120) / height));
}

/** Adds new elements and removes those that no longer exist. */
function sync(cy: Core, graph: Graph): void {
  const wanted = new Map<string, ElementDefinition>();
  for (const { id } of graph.nodes)
    wanted.set(`n${id}`, { group: 'nodes', data: { id: `n${id}`, node: id } });
  for (const { id, from, to } of graph.edges) {
    wanted.set(`e${id}`, {
      group: 'edges',
      data: { id: `e${id}`, source: `n${from}`, target: `n${to}`, from, to },
    });
  }
  cy.elements()
    .filter((element) => !wanted.has(element.id()))
    .remove();
  cy.add([...wanted.values()].filter(({ data }) => cy.getElementById(data.id ?? '').empty()));
}

function listen(cy: Core, select: (selected: Selection | null) => void): void {
  cy.on('tap', 'node', (event) => select({ node: Number(event.target.data('node')) }));
  cy.on('tap', 'edge', (event) =>
    select({ from: Number(event.target.data('from')), to: Number(event.target.data('to')) }),
  );
  cy.on('tap', (event) => {
    if (event.target === cy) select(null);
  });
}

/** Arrow keys select the nodes in the order of their ids; Escape clears the selection. */
function keyboard(
  element: HTMLElement,
  cy: Core,
  select: (selected: Selection | null) => void,
  selected: () => Selection | null,
): void {
  element.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape') select(null);
    if (step === undefined) return;
    event.preventDefault();
    const ids = cy.nodes().map((node) => Number(node.data('node')));
    ids.sort((a, b) => a - b);
    const now = selected();
    const at = now && 'node' in now ? ids.indexOf(now.node) : step > 0 ? -1 : 0;
    const next = ids[(at + step + ids.length) % ids.length];
    if (next !== undefined) select({ node: next });
  });
}
