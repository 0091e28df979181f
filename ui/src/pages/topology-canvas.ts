import cytoscape, { type Core, type ElementDefinition } from 'cytoscape';
import type { PathUse } from '../api/types';
import { h } from '../lib/dom';
import { onTheme } from '../lib/theme';
import { arrange, type Arrangement, type Positions } from '../model/layout';
import { edgeValue, nodeValue, scaleFor, type Graph, type Lens, type Scale } from '../model/topology';
import { paint, styles, type Picked, type Picture } from './topology-paint';

export interface Canvas {
  element: HTMLElement;
  /** Places nodes; only when nodes or links came or went, so that the picture stays still. */
  arrange(graph: Graph, paths: readonly PathUse[]): void;
  /** Colours, widths, highlights. Returns the scale that was used. */
  draw(picture: Picture): Scale;
  fit(): void;
  destroy(): void;
}

const PADDING = 34;
const LARGEST_ZOOM = 1.45;

export function topologyCanvas(options: { pick(picked: Picked | null): void }): Canvas {
  const element = h('div', { class: 'canvas', role: 'application', tabindex: '0' });
  element.setAttribute('aria-label', 'Map of the network. Arrow keys go from node to node.');
  const cy = cytoscape({
    container: element,
    style: styles(),
    layout: { name: 'preset' },
    minZoom: 0.1,
    maxZoom: 3,
    selectionType: 'single',
  });
  const scales = new Map<Lens, Scale>();
  let shape = '';
  let arranged: Arrangement = { shape: 'free', positions: new Map() };
  let last: Picture | null = null;

  listen(cy, options.pick);
  keyboard(element, cy, options.pick, () => last?.picked ?? null);
  const observer = new ResizeObserver(() => {
    cy.resize();
    stand();
    if (last) draw(last);
  });
  observer.observe(element);
  const endTheme = onTheme(() => {
    cy.style(styles());
    if (last) draw(last);
  });

  /** On a small screen nodes show their number only and stand closer. */
  function isCompact(): boolean {
    return element.clientWidth > 0 && element.clientWidth < 560;
  }

  /** Nodes on their places, tiers drawn apart so that the picture fills the box. */
  function stand(): void {
    const squeeze = isCompact() ? 0.55 : 1;
    const stretch = arranged.shape === 'tiers' ? stretchFor(element, arranged.positions, squeeze) : 1;
    cy.nodes().positions((node) => {
      const point = arranged.positions.get(Number(node.data('node'))) ?? { x: 0, y: 0 };
      return { x: point.x * squeeze, y: point.y * stretch };
    });
    cy.fit(undefined, PADDING);
    if (cy.zoom() > LARGEST_ZOOM) cy.zoom(LARGEST_ZOOM);
    cy.center();
  }

  function draw(picture: Picture): Scale {
    last = picture;
    const { graph, lens } = picture;
    const values = [
      ...graph.nodes.map((node) => nodeValue(node, graph, lens)),
      ...graph.edges.map((edge) => edgeValue(edge.link, lens)),
    ];
    const scale = scaleFor(lens, values, scales.get(lens) ?? null);
    scales.set(lens, scale);
    cy.batch(() => paint(cy, picture, scale, { compact: isCompact(), tiered: arranged.shape === 'tiers' }));
    return scale;
  }

  return {
    element,
    arrange(graph, paths) {
      const next = [...graph.nodes.map(({ id }) => id), ...graph.edges.map(({ id }) => id)].join();
      if (next === shape) return;
      shape = next;
      sync(cy, graph);
      arranged = arrange(graph, paths);
      stand();
    },
    draw,
    fit: stand,
    destroy() {
      observer.disconnect();
      endTheme();
      cy.destroy();
    },
  };
}

/** How far tiers must stand apart for the picture to have the shape of its box. */
function stretchFor(box: HTMLElement, positions: Positions, squeeze: number): number {
  const points = [...positions.values()];
  const extent = (values: number[]): number => Math.max(...values) - Math.min(...values);
  const width = extent(points.map(({ x }) => x)) * squeeze + 120;
  const height = extent(points.map(({ y }) => y));
  if (height === 0 || box.clientWidth === 0) return 1;
  return Math.min(2, Math.max(0.7, ((width * box.clientHeight) / box.clientWidth - 120) / height));
}

/** Adds what is new and takes out what is gone. */
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

function listen(cy: Core, pick: (picked: Picked | null) => void): void {
  cy.on('tap', 'node', (event) => pick({ node: Number(event.target.data('node')) }));
  cy.on('tap', 'edge', (event) =>
    pick({ from: Number(event.target.data('from')), to: Number(event.target.data('to')) }),
  );
  cy.on('tap', (event) => {
    if (event.target === cy) pick(null);
  });
}

/** Arrow keys walk over the nodes in the order of their ids; Escape lets go. */
function keyboard(
  element: HTMLElement,
  cy: Core,
  pick: (picked: Picked | null) => void,
  picked: () => Picked | null,
): void {
  element.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape') pick(null);
    if (step === undefined) return;
    event.preventDefault();
    const ids = cy.nodes().map((node) => Number(node.data('node')));
    ids.sort((a, b) => a - b);
    const now = picked();
    const at = now && 'node' in now ? ids.indexOf(now.node) : step > 0 ? -1 : 0;
    const next = ids[(at + step + ids.length) % ids.length];
    if (next !== undefined) pick({ node: next });
  });
}
