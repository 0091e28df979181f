import { get, type Params } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Flow, Heat, Node, Rollup } from '../api/types';
import { LineChart } from '../charts/line';
import { hands } from '../hands';
import { empty, h, setText } from '../lib/dom';
import { ago, count, duration, exact, metricAmount, flowName, pathText, percent } from '../lib/format';
import { live } from '../live';
import { queryCommand, rollupsSql, type Asked } from '../model/copies';
import { WINDOW_SECONDS, worstByNode } from '../model/rates';
import type { Fabric } from '../model/fabric';
import { hostNames, type Hosts } from '../model/hosts';
import { edgeId, isBad, type Graph, type GraphNode, type MapMetric, type Scale } from '../model/topology';
import { watchLink, watchNode, watchQueue } from '../model/watch';
import { heatColumns } from '../model/activity';
import { link } from '../router';
import { times } from '../times';
import { names } from '../lib/names';
import { metricText } from './topology-legend';
import type { Selection } from './topology-style';

type Fact = [name: string, value: string];

/** What the details are about. */
export interface Shown {
  graph: Graph;
  fabric: Fabric | null;
  open: ReadonlySet<string>;
  selected: Selection | null;
  flow: Flow | null;
  hosts: Hosts;
  values: ReadonlyMap<number, number | null>;
  scale: Scale;
  metric: MapMetric;
}

interface Actions {
  toggle(group: string): void;
  select(selected: Selection): void;
}

/** Facts about the selected node, link, group or flow. */
export function detailView(actions: Actions) {
  const title = h('h3');
  const facts = h('dl', { class: 'facts' });
  const links = h('p', { class: 'links' });
  const chartBox = h('div', { class: 'node-chart' });
  const hint = empty('Nothing selected', 'Click a node or a link, or follow a flow from the list.');
  title.setAttribute('aria-live', 'polite');
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
    const addresses = anchors.map((anchor) => `${anchor.getAttribute('href')} ${anchor.textContent}`).join();
    if (links.dataset['shown'] === addresses) return;
    links.dataset['shown'] = addresses;
    links.replaceChildren(...anchors);
  }

  return {
    element: h('div', { class: 'detail' }, hint, title, facts, chartBox, links),
    update(about: Shown): void {
      const { selected } = about;
      const shown = describe(about, actions);
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

function describe(about: Shown, actions: Actions): Description | null {
  const { graph, selected, flow } = about;
  if (selected && 'group' in selected) return describeGroup(about, selected.group, actions);
  if (selected && 'node' in selected) return describeNode(about, selected.node, actions);
  if (selected) return describeLink(graph, selected.from, selected.to);
  return flow ? describeFlow(flow) : null;
}

/** Nodes of a group that get a button of their own. */
const MAX_WORST = 6;

function describeGroup(about: Shown, id: string, actions: Actions): Description | null {
  const { fabric, values, scale, metric } = about;
  const group = fabric?.groups.find((one) => one.id === id);
  if (!fabric || !group) return null;
  const value = (node: number): number => values.get(node) ?? -1;
  const worst = [...group.members].sort((a, b) => value(b) - value(a)).slice(0, MAX_WORST);
  const bad = group.members.filter((node) => isBad(scale, values.get(node) ?? null)).length;
  const names = new Map(about.graph.nodes.map((node) => [node.id, node.name]));
  const nameOf = (node: number): string => names.get(node) ?? String(node);
  const texts = worst.map((node) => `${nameOf(node)} ${metricText(metric, values.get(node) ?? null)}`);
  const buttons = worst.map((node) => act(nameOf(node), () => actions.select({ node })));
  return {
    title: group.name,
    facts: [
      ['nodes', exact(group.members.length)],
      ['bad', bad === 0 ? 'none' : `${exact(bad)}, in the last fifth of the scale`],
      ['worst', texts.join(', ')],
    ],
    links: [
      ...buttons,
      act(about.open.has(id) ? 'close the group' : 'open the group', () => actions.toggle(id)),
    ],
  };
}

function act(text: string, click: () => void): HTMLElement {
  return h('button', { type: 'button', class: 'as-link', on: { click } }, text);
}

/** Queues of a node that are listed: the fullest. The others are counted. */
const MAX_QUEUES = 8;

type Queue = Node['queues'][number];

/** The fullest queues, by occupancy, then by the greatest occupancy. */
function fullest(queues: readonly Queue[]): Queue[] {
  const by = (a: Queue, b: Queue): number =>
    (b.occupancy ?? 0) - (a.occupancy ?? 0) || (b.max ?? 0) - (a.max ?? 0);
  return [...queues].sort(by).slice(0, MAX_QUEUES);
}

function queueName(node: number, { queue, interface: port }: Queue): string {
  if (queue === null) return 'all queues';
  return port === null ? `queue ${queue}` : `interface ${names.interface(node, port)} queue ${queue}`;
}

function describeNode(about: Shown, id: number, actions: Actions): Description | null {
  const entry = about.graph.nodes.find((node) => node.id === id);
  if (!entry) return null;
  const title = entry.name === String(id) ? `Node ${id}` : `${entry.name} (node ${id})`;
  const events = h('a', { href: link('events', '', { node: String(id) }) }, 'events of this node');
  const queues = fullest(entry.node?.queues ?? []).map((one) => {
    const name = one.queue === null ? 'its queues' : queueName(id, one);
    return watchThis(`watch ${name}`, watchQueue(id, one.queue, one.interface));
  });
  const all = h('a', { href: link('queues') }, 'all queues');
  const group = about.fabric?.groups.find(({ members }) => members.includes(id));
  return {
    title,
    facts: [
      ...(entry.node ? nodeFacts(entry.node) : ([['reports', 'none']] satisfies Fact[])),
      ...dropFacts(entry),
      ...(group ? ([['group', group.name]] satisfies Fact[]) : []),
      ...hostFacts(about.hosts.get(id) ?? []),
    ],
    links: [
      events,
      watchThis('watch this node', watchNode(id)),
      ...queues,
      ...((entry.node?.queues.length ?? 0) > MAX_QUEUES ? [all] : []),
      ...(group ? [act('close its group', () => actions.toggle(group.id))] : []),
    ],
  };
}

/** Hosts that are named; the others are counted. */
const MAX_HOSTS = 12;

function hostFacts(addresses: readonly string[]): Fact[] {
  if (addresses.length === 0) return [];
  const all = hostNames(addresses, (address) => names.host(address));
  const shown = all.slice(0, MAX_HOSTS);
  const more = all.length - shown.length;
  return [['hosts', shown.join(', ') + (more > 0 ? `, and ${exact(more)} more` : '')]];
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
      : spread && spread.max !== null
        ? [['hop latency', `min ${duration(spread.min)}, max ${duration(spread.max)}`]]
        : [['hop latency', 'not reported']];
  const queues = fullest(node.queues).map((one): Fact => {
    const { occupancy, max, unit } = one;
    return [queueName(node.node, one), `${count(occupancy)}, max ${count(max)} ${unit}`];
  });
  const rest = node.queues.length - queues.length;
  if (rest > 0) queues.push(['other queues', `${exact(rest)} more, none fuller`]);
  return [...latency, ...queues, ['reports', count(node.reports)], lastSeen(node.last_seen)];
}

/** Beside the map of losses, of its time. What is live has no other than since the start of the program. */
function dropFacts({ node, dropped }: GraphNode): Fact[] {
  if (dropped !== null) return [['drops in this time', exact(dropped)]];
  if (node === null) return [];
  return [[times.isLive() ? 'drops since the start' : 'drops in this time', exact(node.drops)]];
}

function describeLink(graph: Graph, from: number, to: number): Description | null {
  const edge = graph.edges.find(({ id }) => id === edgeId(from, to));
  if (!edge) return null;
  const { link: found } = edge;
  const facts: Fact[] = [
    ['interfaces', `${interfaceName(from, found.egress_if)} → ${interfaceName(to, found.ingress_if)}`],
    ['utilization', percent(found.utilization)],
    ['queue', metricAmount('queue_occupancy', found.queue_occupancy)],
    ['hop latency', `${duration(found.hop_latency)} at ${names.node(from)}`],
    ['flows', exact(found.flows)],
    lastSeen(found.last_seen),
  ];
  const back = graph.edges.some(({ id }) => id === edgeId(to, from));
  const title = `Link ${names.node(from)} → ${names.node(to)}${back ? '' : ' (one way)'}`;
  return { title, facts, links: [watchThis('watch this link', watchLink(from, to))] };
}

/** Of another time, `ts` is the end of the minute, ten minutes or hour of the last report. */
function lastSeen(ts: number): Fact {
  const text = ago(ts, live.now());
  return ['last seen', times.isLive() ? text : `${text} or earlier`];
}

function interfaceName(node: number, id: number | null): string {
  return id === null ? '?' : names.interface(node, id);
}

function watchThis(text: string, query: Record<string, string>): HTMLElement {
  return h('a', { href: link('intents', 'new', query) }, text);
}

function describeFlow(flow: Flow): Description {
  const facts: Fact[] = [
    ['path', pathText(flow.path)],
    ['latency', duration(flow.flow_latency)],
    ['reports', count(flow.reports)],
    lastSeen(flow.last_seen),
  ];
  const page = h('a', { href: link('flow', flow.id) }, 'hop by hop');
  return { title: flowName(flow.flow), facts, links: [page] };
}

/** Median and 99th percentile of the node's latency over the last 15 minutes. */
function nodeChart(node: number, box: HTMLElement): { node: number; stop(): void } {
  const chart = new LineChart(
    times.isLive()
      ? [
          { label: 'p99', colour: 'series-2' },
          { label: 'p50', colour: 'accent' },
        ]
      : [{ label: 'greatest', colour: 'series-2' }],
    {
      label: `Hop latency of node ${names.node(node)}`,
      format: duration,
      unit: 'ns',
      unitInFormat: true,
      now: () => live.now(),
      height: 120,
    },
  );
  box.replaceChildren(h('div', { class: 'chart-hands' }, nodeHands(node, chart)), chart.element);
  const from = (): string => BigInt(Math.round(live.now() - WINDOW_SECONDS * 1e9)).toString();
  const answers = times.isLive() ? stored(node, chart, from) : greatest(node, chart);
  return {
    node,
    stop() {
      answers.stop();
      chart.destroy();
    },
  };
}

function nodeHands(node: number, chart: LineChart): HTMLElement {
  const rollups = () => ({
    metric: 'hop_latency',
    node,
    interval: 1,
    from: times.span().from,
    limit: 10_000,
  });
  const asked = (): Asked[] =>
    times.isLive() ? [{ path: 'rollups', params: rollups() }] : [greatestOf(node, times.span())];
  return hands({
    title: `Hop latency of ${names.node(node)}`,
    asked,
    sql: () => (times.isLive() ? rollupsSql(rollups()) : null),
    command: () => (times.isLive() ? queryCommand(rollupsSql(rollups()), 10_000) : null),
    sheet: () => chart.sheet(),
    drawing: () => chart.element,
  });
}

/** The greatest hop latency of a node in each part of a time. */
function greatestOf(node: number, time: Record<string, string>): Asked & { params: Params } {
  return { path: 'queues', params: { ...time, metric: 'hop_latency', node, columns: 200, limit: 1 } };
}

function stored(node: number, chart: LineChart, from: () => string): Poll {
  return poll<{ rollups: Rollup[] }>({
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
}

/** Of another time: the greatest value of each part. */
function greatest(node: number, chart: LineChart): Poll {
  return poll<Heat>({
    intervalMs: () => times.intervalMs(10_000),
    request(signal) {
      const { path, params } = greatestOf(node, times.query());
      return get<Heat>(path, params, signal);
    },
    show(heat) {
      const { axis, values } = heatColumns(heat, String);
      chart.update([axis, values[0] ?? axis.map(() => null)]);
    },
  });
}
