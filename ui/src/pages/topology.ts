import { ApiError, get, Unreachable } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Flow, Link, Node, PathUse } from '../api/types';
import { empty, h, panel, setText, show } from '../lib/dom';
import { plural } from '../lib/format';
import { buildGraph, type Graph, type MapMetric } from '../model/topology';
import type { Page, Route } from '../router';
import { flowList } from './flow-list';
import { TopologyCanvas } from './topology-canvas';
import type { Selection } from './topology-paint';
import { detailView } from './topology-detail';
import { legendView, metricPicker } from './topology-legend';

interface Answer {
  nodes: Node[];
  links: Link[];
  paths: PathUse[];
}

/** The network as the reports' paths show it. */
export function topologyPage(route: Route): Page {
  return new TopologyPage(route);
}

class TopologyPage implements Page {
  readonly element: HTMLElement;
  private metric: MapMetric = 'latency';
  private graph: Graph = { nodes: [], edges: [] };
  private selected: Selection | null;
  /** The flow whose path is highlighted. */
  private flow: Flow | null = null;
  private flowPoll: Poll | undefined;
  private stopped = false;
  private readonly legend = legendView();
  private readonly detail = detailView();
  private readonly summary = h('span', { class: 'muted map-summary' });
  private readonly nothing = empty(
    'No nodes yet',
    'Nodes and links are learnt from the paths in reports. They appear with the first report that has hops.',
  );
  private readonly canvas = new TopologyCanvas((selected) => this.select(selected));
  private readonly list = flowList({
    selected: () => this.flow?.id ?? '',
    select: (flow) => this.follow(this.flow?.id === flow.id ? null : flow),
  });
  private readonly answers = poll<Answer>({
    intervalMs: 1000,
    request: requestAll,
    show: (answer) => this.take(answer),
  });

  constructor(route: Route) {
    this.selected = nodeOf(route);
    this.element = this.build();
    void this.followNamed(route);
  }

  route(route: Route): void {
    this.select(nodeOf(route) ?? this.selected);
    void this.followNamed(route);
  }

  stop(): void {
    this.stopped = true;
    this.answers.stop();
    this.flowPoll?.stop();
    this.list.stop();
    this.detail.stop();
    this.canvas.destroy();
  }

  private build(): HTMLElement {
    this.nothing.hidden = true;
    const metrics = metricPicker(this.metric, (metric) => {
      this.metric = metric;
      this.draw();
    });
    const title = 'Show the whole network';
    const reset = h(
      'button',
      { type: 'button', class: 'quiet', title, on: { click: () => this.canvas.fit() } },
      'Fit',
    );
    const aside = h('div', { class: 'bar' }, this.summary, metrics, reset);
    const map = h('div', { class: 'map' }, this.canvas.element, this.nothing);
    const details = panel('Details', {}, this.detail.element);
    const flows = panel('Follow a flow', { class: 'follow' }, this.list.element);
    return h(
      'div',
      { class: 'page topology' },
      panel('Topology', { class: 'map-panel', aside }, map, this.legend.element),
      h('div', { class: 'side' }, details, flows),
    );
  }

  private take(answer: Answer): void {
    this.graph = buildGraph(answer.nodes, answer.links);
    const { nodes, edges } = this.graph;
    show(this.nothing, nodes.length === 0);
    setText(this.summary, `${plural(nodes.length, 'node')}, ${plural(edges.length, 'link')}`);
    this.canvas.arrange(this.graph, answer.paths);
    this.draw();
  }

  private draw(): void {
    const { graph, metric, selected, flow } = this;
    const scale = this.canvas.draw({ graph, metric, path: flow?.path ?? null, selected });
    this.legend.update(metric, scale);
    this.detail.update(graph, selected, flow);
  }

  private select(selected: Selection | null): void {
    this.selected = selected;
    this.draw();
  }

  private follow(flow: Flow | null): void {
    this.flow = flow;
    this.flowPoll?.stop();
    this.list.refresh();
    this.draw();
    if (!flow || this.stopped) return;
    this.flowPoll = poll<Flow>({
      intervalMs: 1000,
      request: (signal) => get(`flows/${encodeURIComponent(flow.id)}`, {}, signal),
      show: (answer) => {
        this.flow = answer;
        this.draw();
      },
    });
  }

  /** Follows the flow that the address names; one that has expired is ignored. */
  private async followNamed(route: Route): Promise<void> {
    const name = route.query.get('flow') ?? '';
    if (name === '') return;
    try {
      this.follow(await get<Flow>(`flows/${encodeURIComponent(name)}`));
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
    }
  }
}

async function requestAll(signal: AbortSignal): Promise<Answer> {
  const [nodes, links, paths] = await Promise.all([
    get<{ nodes: Node[] }>('nodes', {}, signal),
    get<{ links: Link[] }>('links', {}, signal),
    get<{ paths: PathUse[] }>('paths', {}, signal),
  ]);
  return { ...nodes, ...links, ...paths };
}

function nodeOf(route: Route): Selection | null {
  const id = Number(route.argument);
  return route.argument !== '' && Number.isFinite(id) ? { node: id } : null;
}
