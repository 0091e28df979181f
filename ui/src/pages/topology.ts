import { ApiError, get, Unreachable } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Flow, Link, Node, PathUse } from '../api/types';
import { empty, h, panel, setText, show } from '../lib/dom';
import { plural } from '../lib/format';
import { buildGraph, type Graph } from '../model/topology';
import type { Page, Route } from '../router';
import { Settings } from '../settings';
import { FLOW_LIST_DEFAULTS, flowList } from './flow-list';
import { TopologyCanvas } from './topology-canvas';
import type { Selection } from './topology-paint';
import { detailView } from './topology-detail';
import { legendView, metricNamed, metricPicker } from './topology-legend';

interface Answer {
  nodes: Node[];
  links: Link[];
  paths: PathUse[];
}

/** What a person sets on the map, by the names in the address. The address also names what is selected. */
const DEFAULTS = { ...FLOW_LIST_DEFAULTS, lens: 'latency', flow: '' };

/** The network as the reports' paths show it. */
export function topologyPage(route: Route): Page {
  return new TopologyPage(route);
}

class TopologyPage implements Page {
  readonly element: HTMLElement;
  private readonly settings: Settings<typeof DEFAULTS>;
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
  private readonly metrics = metricPicker((metric) => {
    this.settings.set({ lens: metric });
    this.draw();
  });
  private readonly list: ReturnType<typeof flowList>;
  private readonly answers = poll<Answer>({
    intervalMs: 1000,
    request: requestAll,
    show: (answer) => this.take(answer),
  });

  constructor(route: Route) {
    this.settings = new Settings(route, DEFAULTS);
    this.list = flowList({
      settings: this.settings,
      selected: () => this.flow?.id ?? '',
      select: (flow) => this.choose(this.flow?.id === flow.id ? null : flow),
    });
    this.selected = selectionOf(route.argument);
    this.element = this.build();
    void this.followNamed();
  }

  route(route: Route): void {
    if (this.settings.adopt(route)) this.list.adopt();
    this.selected = selectionOf(route.argument);
    this.draw();
    void this.followNamed();
  }

  stop(): void {
    this.stopped = true;
    this.settings.stop();
    this.answers.stop();
    this.flowPoll?.stop();
    this.list.stop();
    this.detail.stop();
    this.canvas.destroy();
  }

  private build(): HTMLElement {
    this.nothing.hidden = true;
    const title = 'Show the whole network';
    const reset = h(
      'button',
      { type: 'button', class: 'quiet', title, on: { click: () => this.canvas.fit() } },
      'Fit',
    );
    const aside = h('div', { class: 'bar' }, this.summary, this.metrics.element, reset);
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
    const { graph, selected, flow } = this;
    const metric = metricNamed(this.settings.get('lens'));
    this.metrics.update(metric);
    const scale = this.canvas.draw({ graph, metric, path: flow?.path ?? null, selected });
    this.legend.update(metric, scale);
    this.detail.update(graph, selected, flow);
  }

  private select(selected: Selection | null): void {
    this.selected = selected;
    this.settings.go(selectionText(selected));
    this.draw();
  }

  private choose(flow: Flow | null): void {
    this.settings.set({ flow: flow?.id ?? '' });
    this.follow(flow);
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
  private async followNamed(): Promise<void> {
    const name = this.settings.get('flow');
    if (name === '') return this.follow(null);
    if (this.flow && [this.flow.id, this.flow.text].includes(name)) return;
    try {
      const flow = await get<Flow>(`flows/${encodeURIComponent(name)}`);
      // Meanwhile another one may have been chosen.
      if (this.settings.get('flow') === name) this.follow(flow);
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

/** `101` is a node, `101>201` a link. */
function selectionOf(argument: string): Selection | null {
  const [from, to, ...more] = argument.split('>').map((part) => (/^\d+$/.test(part) ? Number(part) : null));
  if (from === null || from === undefined || to === null || more.length > 0) return null;
  return to === undefined ? { node: from } : { from, to };
}

function selectionText(selected: Selection | null): string {
  if (selected === null) return '';
  return 'node' in selected ? String(selected.node) : `${selected.from}>${selected.to}`;
}
