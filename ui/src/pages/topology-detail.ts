import { get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Flow, Node, Rollup } from '../api/types';
import { LineChart } from '../charts/line';
import { empty, h, setText } from '../lib/dom';
import { ago, count, duration, exact, flowName, pathText, percent } from '../lib/format';
import { live } from '../live';
import { WINDOW_SECONDS, worstByNode } from '../model/rates';
import { edgeId, type Graph } from '../model/topology';
import { watchLink, watchNode, watchQueue } from '../model/watch';
import { link } from '../router';
import type { Selection } from './topology-paint';

type Fact = [name: string, value: string];

/** Facts about the selected node, link or flow. */
export function detailView() {
  const title = h('h3');
  const facts = h('dl', { class: 'facts' });
  const links = h('p', { class: 'links' });
  const chartBox = h('div', { class: 'node-chart' });
  const hint = empty('Nothing selected', 'Click a node or a link, or follow a flow from the list.');
  let chart: { node: number; stop(): void } | null = null;

  function showChart(node: number | null): void {
    if (chart?.node === node) return;
    chart?.stop();
    chart = node === null ? null : nodeChart(node, chartBox);
    if (node === null) chartBox.replaceChildren();
  }

  function fill(heading: string, list: readonly Fact[], anchors: readonly HTMLElement[]): void {
    setText(title, heading);
    const key = JSON.stringify(list);
    if (facts.dataset['shown'] !== key) {
      facts.dataset['shown'] = key;
      facts.replaceChildren(...list.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
    }
    const addresses = anchors.map((anchor) => anchor.getAttribute('href')).join();
    if (links.dataset['shown'] === addresses) return;
    links.dataset['shown'] = addresses;
    links.replaceChildren(...anchors);
  }

  return {
    element: h('div', { class: 'detail' }, hint, title, facts, chartBox, links),
    update(graph: Graph, selected: Selection | null, flow: Flow | null): void {
      const shown = describe(graph, selected, flow);
      hint.hidden = shown !== null;
      showChart(shown && selected && 'node' in selected ? selected.node : null);
      fill(shown?.title ?? '', shown?.facts ?? [], shown?.links ?? []);
    },
    stop: () => chart?.stop(),
  };
}

interface Description {
  title: string;
  facts: Fact[];
  links: HTMLElement[];
}

function describe(graph: Graph, selected: Selection | null, flow: Flow | null): Description | null {
  if (selected && 'node' in selected) return describeNode(graph, selected.node);
  if (selected) return describeLink(graph, selected.from, selected.to);
  return flow ? describeFlow(flow) : null;
}

/** Queues of a node that get a link of their own. */
const MOST_QUEUES = 8;

function describeNode(graph: Graph, id: number): Description | null {
  const entry = graph.nodes.find((node) => node.id === id);
  if (!entry) return null;
  const title = entry.name === String(id) ? `Node ${id}` : `${entry.name} (node ${id})`;
  const events = h('a', { href: link('events', '', { node: String(id) }) }, 'events of this node');
  const queues = (entry.node?.queues ?? [])
    .slice(0, MOST_QUEUES)
    .map(({ queue }) =>
      watchThis(queue === null ? 'watch its queues' : `watch queue ${queue}`, watchQueue(id, queue)),
    );
  return {
    title,
    facts: entry.node ? nodeFacts(entry.node) : [['reports', 'none']],
    links: [events, watchThis('watch this node', watchNode(id)), ...queues],
  };
}

function nodeFacts(node: Node): Fact[] {
  const spread = node.hop_latency;
  const latency: Fact[] =
    spread && spread.latest !== null
      ? [
          ['hop latency', `${duration(spread.latest)} now`],
          ['last second', `p50 ${duration(spread.p50)}, p99 ${duration(spread.p99)}`],
          ['', `min ${duration(spread.min)}, max ${duration(spread.max)}`],
        ]
      : [['hop latency', 'not reported']];
  const queues = node.queues.map(({ queue, occupancy, max, unit }): Fact => {
    return [
      queue === null ? 'all queues' : `queue ${queue}`,
      `${count(occupancy)}, max ${count(max)} ${unit}`,
    ];
  });
  return [
    ...latency,
    ...queues,
    ['drops', exact(node.drops)],
    ['reports', count(node.reports)],
    ['last seen', ago(node.last_seen, live.now())],
  ];
}

function describeLink(graph: Graph, from: number, to: number): Description | null {
  const edge = graph.edges.find(({ id }) => id === edgeId(from, to));
  if (!edge) return null;
  const { link: found } = edge;
  const facts: Fact[] = [
    ['interfaces', `${found.egress_if ?? '?'} → ${found.ingress_if ?? '?'}`],
    ['utilization', percent(found.utilization)],
    ['queue', count(found.queue_occupancy)],
    ['hop latency', `${duration(found.hop_latency)} at ${from}`],
    ['flows', exact(found.flows)],
    ['last seen', ago(found.last_seen, live.now())],
  ];
  const back = graph.edges.some(({ id }) => id === edgeId(to, from));
  const title = `Link ${from} → ${to}${back ? '' : ' (one way)'}`;
  return { title, facts, links: [watchThis('watch this link', watchLink(from, to))] };
}

function watchThis(text: string, query: Record<string, string>): HTMLElement {
  return h('a', { href: link('intents', 'new', query) }, text);
}

function describeFlow(flow: Flow): Description {
  const facts: Fact[] = [
    ['path', pathText(flow.path)],
    ['latency', duration(flow.flow_latency)],
    ['reports', count(flow.reports)],
    ['last seen', ago(flow.last_seen, live.now())],
  ];
  const page = h('a', { href: link('flow', flow.id) }, 'hop by hop');
  return { title: flowName(flow.flow), facts, links: [page] };
}

/** Median and 99th percentile of the node's latency over the last 15 minutes. */
function nodeChart(node: number, box: HTMLElement): { node: number; stop(): void } {
  const chart = new LineChart(
    [
      { label: 'p99', colour: 'series-2' },
      { label: 'p50', colour: 'accent' },
    ],
    {
      label: `Hop latency of node ${node}, last 15 minutes`,
      format: duration,
      now: () => live.now(),
      height: 120,
    },
  );
  box.replaceChildren(chart.element);
  const from = (): string => BigInt(Math.round(live.now() - WINDOW_SECONDS * 1e9)).toString();
  const answers: Poll = poll<{ rollups: Rollup[] }>({
    intervalMs: 5000,
    request: async (signal) => {
      if (!live.hasStore()) return { rollups: [] };
      const requested = { metric: 'hop_latency', node, interval: 1, from: from(), limit: 10_000 };
      return get<{ rollups: Rollup[] }>('rollups', requested, signal);
    },
    show({ rollups }) {
      const high = worstByNode(rollups, 1);
      const middle = worstByNode(
        rollups.map((rollup) => ({ ...rollup, p99: rollup.p50, max: rollup.min })),
        1,
      );
      chart.update([high.times, high.values[0] ?? [], middle.values[0] ?? []]);
    },
  });
  return {
    node,
    stop() {
      answers.stop();
      chart.destroy();
    },
  };
}
