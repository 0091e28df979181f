import { get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Flow, Link, Node, PathUse } from '../api/types';
import { empty, h, panel, setText, show } from '../lib/dom';
import { plural } from '../lib/format';
import { buildGraph, type Graph, type Lens } from '../model/topology';
import type { Page, Route } from '../router';
import { flowList } from './flow-list';
import { topologyCanvas, type Canvas } from './topology-canvas';
import type { Picked } from './topology-paint';
import { detailView } from './topology-detail';
import { legendView, lensPicker } from './topology-legend';

interface Answer {
  nodes: Node[];
  links: Link[];
  paths: PathUse[];
}

/** The network as the reports' paths show it. */
export function topologyPage(route: Route): Page {
  let lens: Lens = 'latency';
  let graph: Graph = { nodes: [], edges: [] };
  let flow: Flow | null = null;
  let wanted = route.query.get('flow') ?? '';
  let picked: Picked | null = nodeOf(route);
  let flowPoll: Poll | undefined;
  const legend = legendView();
  const summary = h('span', { class: 'muted map-summary' });
  const detail = detailView();
  const nothing = empty(
    'No nodes yet',
    'Nodes and links are learnt from the paths in reports. They appear with the first report that names hops.',
  );
  const canvas: Canvas = topologyCanvas({
    pick(next) {
      picked = next;
      draw();
    },
  });
  const lenses = lensPicker(lens, (next) => {
    lens = next;
    draw();
  });
  const list = flowList({
    picked: () => flow?.id ?? '',
    pick: (next) => follow(flow?.id === next.id ? null : next),
  });

  function follow(next: Flow | null): void {
    flow = next;
    flowPoll?.stop();
    list.refresh();
    draw();
    if (!next) return;
    flowPoll = poll<Flow>({
      intervalMs: 1000,
      ask: (signal) => get(`flows/${encodeURIComponent(next.id)}`, {}, signal),
      show(answer) {
        flow = answer;
        draw();
      },
    });
  }

  function draw(): void {
    const scale = canvas.draw({ graph, lens, path: flow?.path ?? null, picked });
    legend.update(lens, scale);
    detail.update(graph, picked, flow);
  }

  const answers = poll<Answer>({
    intervalMs: 1000,
    ask: askAll,
    show(answer) {
      graph = buildGraph(answer.nodes, answer.links);
      show(nothing, graph.nodes.length === 0);
      setText(summary, `${plural(graph.nodes.length, 'node')}, ${plural(graph.edges.length, 'link')}`);
      canvas.arrange(graph, answer.paths);
      draw();
      if (wanted !== '') void findFlow();
    },
  });

  async function findFlow(): Promise<void> {
    const id = wanted;
    wanted = '';
    try {
      follow(await get<Flow>(`flows/${encodeURIComponent(id)}`));
    } catch {
      // The flow has expired: the map is shown without it.
    }
  }

  const map = h('div', { class: 'map' }, canvas.element, nothing);
  nothing.hidden = true;
  const reset = h(
    'button',
    { type: 'button', class: 'quiet', title: 'Show the whole network', on: { click: () => canvas.fit() } },
    'Fit',
  );
  const aside = h('div', { class: 'bar' }, summary, lenses, reset);
  const element = h(
    'div',
    { class: 'page topology' },
    panel('Topology', { class: 'map-panel', aside }, map, legend.element),
    h(
      'div',
      { class: 'side' },
      panel('Details', {}, detail.element),
      panel('Follow a flow', { class: 'follow' }, list.element),
    ),
  );
  return {
    element,
    route(next) {
      picked = nodeOf(next) ?? picked;
      wanted = next.query.get('flow') ?? '';
      if (wanted !== '') void findFlow();
      draw();
    },
    stop() {
      answers.stop();
      flowPoll?.stop();
      list.stop();
      detail.stop();
      canvas.destroy();
    },
  };
}

async function askAll(signal: AbortSignal): Promise<Answer> {
  const [nodes, links, paths] = await Promise.all([
    get<{ nodes: Node[] }>('nodes', {}, signal),
    get<{ links: Link[] }>('links', {}, signal),
    get<{ paths: PathUse[] }>('paths', {}, signal),
  ]);
  return { ...nodes, ...links, ...paths };
}

function nodeOf(route: Route): Picked | null {
  const id = Number(route.argument);
  return route.argument !== '' && Number.isFinite(id) ? { node: id } : null;
}
