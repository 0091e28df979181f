import type { Params } from '../api/client';
import type { FlowDetail, FlowHistory, FlowHop, HistoryPoint } from '../api/types';
import { legendEntry, StackedChart } from '../charts/stacked';
import { apiOption, hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { ago, bothTimes, count, dateTime, duration, exact, flowName, percent } from '../lib/format';
import { LiveTable, type Column } from '../lib/table';
import { live } from '../live';
import { basisMark } from '../model/events';
import { hopwise, type Asked } from '../model/copies';
import { isImplausible, latencyText, linkLatency } from '../model/hop';
import { names } from '../lib/names';
import { WINDOW_SECONDS } from '../model/rates';
import { pathChanges, sample, stack, type Stack } from '../model/stack';
import { watchFlow } from '../model/watch';
import { link } from '../router';
import { session } from '../session';
import { times } from '../times';

/** Everything about one flow. `name`: its id or its text. */
export function flowView(name: string) {
  let text = '';
  const address = `flows/${encodeURIComponent(name)}`;
  const asked = (path: string, params: Params = {}): Asked[] => [
    { path, params: { ...wholeTime(), ...params } },
  ];
  const head = header();
  const path = pathStrip();
  const hops = hopTable();
  const sum = h('p', { class: 'table-note' });
  const chart = new StackedChart(() => live.now(), 260);
  const legend = h('span', { class: 'legend' });
  const nothing = h(
    'p',
    { class: 'table-note' },
    'This flow’s reports have no latency: its switches send neither timestamps nor hop latency.',
  );
  nothing.hidden = true;
  const drawing = new StackDrawing(chart, legend, nothing);
  const element = h(
    'div',
    {},
    panel('Flow', { class: 'flow-head' }, head.element, path.element),
    panel(
      'Latency of each hop, stacked',
      {
        aside: legend,
        hands: hands({
          title: 'Latency of each hop',
          asked: () => asked(`${address}/history`, { limit: HISTORY }),
          command: () =>
            text === ''
              ? null
              : hopwise('events', { flow: text, limit: HISTORY, ...wholeTime(), api: apiOption() }),
          sheet: () => chart.sheet(),
        }),
      },
      chart.element,
      h(
        'p',
        { class: 'table-note' },
        `${HOLDS} ${
          times.isLive()
            ? 'Since the page was opened: the latest packet, once a second.'
            : 'Drag to zoom, double-click to zoom out.'
        }`,
      ),
      nothing,
    ),
    panel(
      'Hops',
      {
        hands: hands({
          title: 'Hops',
          now: () => times.isLive(),
          asked: () => asked(address),
          command: () => (times.isLive() && text !== '' ? hopwise('path', { api: apiOption() }, text) : null),
          sheet: () => hops.sheet(),
        }),
      },
      hops.element,
      sum,
    ),
  );
  return {
    element,
    update(flow: FlowDetail): void {
      text = flow.text;
      head.update(flow);
      // Postcards carry hops without their order, so no path is drawn.
      path.update(flow.path.length > 0 ? flow.hops : []);
      hops.update(flow.hops);
      setText(sum, sumText(flow));
      drawing.add(flow);
    },
    history: (answer: FlowHistory) => drawing.history(answer),
    destroy: () => chart.destroy(),
  };
}

/** How the chart is read. */
const HOLDS =
  'Only significant changes are stored: each value holds until the next one, or until the flow is silent. A gap is a time without reports: none was stored for three times push_interval, or no packet of any flow took as long at a node for ten times the mean interval of the flow’s reports, at least two seconds. A burst is drawn a few pixels wide at least.';

/** How wide a burst is drawn at least, pixels: what falls between two is not seen. */
const BURST = 2.5;

/** Points of a flow's history. */
const HISTORY = 3000;

/** The time of the page; of what is live, as long as the chart. */
function wholeTime(): { from?: string; to?: string } {
  const { from, to } = times.span();
  return times.isLive() ? { from } : { from, to };
}

/** Above this ratio of flow latency to the hops' sum, the stacked hops would be a line at the bottom. */
const MAX_RATIO = 4;

/** Stored and live latencies of the flow in one chart. */
class StackDrawing {
  private labels = '';
  private stored: FlowHistory = { series: [], paths: [] };
  private samples: HistoryPoint[] = [];
  private firstSeen = 0;
  /** Whether the flow's own latency is drawn. Undecided until there are data. */
  private total: boolean | null = null;
  private readonly toggle = h('button', { type: 'button' }, h('i', { class: 'swatch line' }), 'flow latency');

  constructor(
    private readonly chart: StackedChart,
    private readonly legend: HTMLElement,
    private readonly nothing: HTMLElement,
  ) {
    this.toggle.title = 'From the first node’s ingress to the last node’s egress, time on links included';
    this.toggle.addEventListener('click', () => {
      this.showTotal(this.total !== true);
      this.draw();
    });
  }

  add(flow: FlowDetail): void {
    this.firstSeen = flow.first_seen;
    // What is shown of another time is only what was stored.
    if (!times.isLive()) return this.draw();
    this.samples = [...this.samples, sample(flow, live.now())].slice(-WINDOW_SECONDS);
    this.draw();
  }

  history(answer: FlowHistory): void {
    this.stored = answer;
    this.draw();
  }

  private draw(): void {
    const stacked = stack([...this.stored.series, ...this.samples], this.visible());
    if (this.total === null && stacked.times.length > 0)
      this.showTotal(highest(stacked.total) < MAX_RATIO * hopsHighest(stacked));
    this.chart.update(stacked, pathChanges(this.stored.paths, this.firstSeen));
    const measured = stacked.own.some((column) => column.some((value) => value !== null));
    show(this.nothing, stacked.times.length > 0 && !measured);
    if (this.labels === stacked.labels.join()) return;
    this.labels = stacked.labels.join();
    this.legend.replaceChildren(...stacked.labels.map((label, i) => legendEntry(label, i)), this.toggle);
  }

  /** How long a burst is drawn at least, s. */
  private visible(): number {
    return ((times.length() / 1e9) * BURST) / Math.max(100, this.chart.element.clientWidth);
  }

  private showTotal(shown: boolean): void {
    this.total = shown;
    this.toggle.setAttribute('aria-pressed', String(shown));
    this.chart.showTotal(shown);
  }
}

function highest(column: readonly (number | null)[]): number {
  return column.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

function hopsHighest(stacked: Stack): number {
  return highest(stacked.tops[stacked.tops.length - 1] ?? []);
}

function header() {
  const name = h('h1');
  const latency = h('b');
  const mark = h('em', { class: 'mark' });
  const order = h('em', { class: 'mark' });
  const facts = h('span', { class: 'muted' });
  const links = h('a', {}, 'events of this flow');
  const onMap = h('a', {}, 'on the map');
  const watch = h('a', {}, 'watch this');
  const paths = h('a', {}, 'paths, both directions');
  return {
    element: h(
      'div',
      { class: 'flow-title' },
      name,
      h('p', {}, latency, mark, order, facts),
      h('p', { class: 'links' }, links, onMap, paths, session.console ? null : watch),
    ),
    update(flow: FlowDetail): void {
      const basis = basisMark(flow.basis);
      const now = live.now();
      setText(name, flowName(flow.flow));
      setText(latency, duration(flow.flow_latency));
      setText(mark, basis?.mark ?? '');
      mark.title = basis?.hint ?? '';
      const path = basisMark(flow.path_basis ?? null);
      const marks = [path ? `path ${path.mark}` : '', flow.incomplete ? 'path incomplete' : ''];
      setText(order, marks.filter((text) => text !== '').join(' · '));
      order.title = flow.incomplete
        ? 'Nodes may be missing: only packets whose hop limit, MTU or room of an IOAM trace was exhausted, or a node that reported its queue, have shown the path'
        : (path?.hint ?? '');
      setText(facts, `${sharesText(flow)}${truncation(flow)}${seenText(flow, now)}`);
      facts.title = `${exact(flow.reports)} reports, from ${bothTimes(flow.first_seen)} to ${bothTimes(flow.last_seen)}${times.isLive() ? '' : ROUNDED}`;
      links.href = link('events', '', { filter: flow.text });
      onMap.href = link('topology', '', { flow: times.isLive() ? flow.id : flow.text });
      paths.href = link('paths', flow.text);
      watch.href = link('intents', 'new', watchFlow(flow.flow));
    },
  };
}

/** Reports of another time are counted by the minute. */
const ROUNDED =
  '. These are the beginning and the end of the minutes, ten minutes or hours in which they were counted: the first report came later, the last one earlier.';

/** What the latency consists of. Of another time, the values are of different packets. */
function sharesText(flow: FlowDetail): string {
  const links = times.isLive() ? linkLatency(flow) : null;
  if (links === null || flow.flow_latency === null) return '';
  return `nodes ${duration(flow.flow_latency - links)} + links ${duration(links)} · `;
}

/** Why the hops do not add up to the latency of the flow. */
function sumText(flow: FlowDetail): string {
  if (flow.flow_latency === null || flow.hops.length === 0) return '';
  if (!times.isLive())
    return 'Each hop has its last value before the end of this time, the flow its greatest one: they are of different packets and need not add up.';
  const links = linkLatency(flow);
  return links === null
    ? ''
    : `The hops add up to ${duration(flow.flow_latency - links)}. The rest of the flow’s ${duration(flow.flow_latency)}, ${duration(links)}, is time on links.`;
}

/** In another time than now, what counts is the range of its latencies. */
function seenText(flow: FlowDetail, now: number): string {
  const { latencies } = flow;
  const reports = `${count(flow.reports)} reports`;
  if (times.isLive())
    return `${reports} since first seen, ${ago(flow.first_seen, now)} · last seen ${ago(flow.last_seen, now)}`;
  const all = latencies
    ? `latency ${duration(latencies.min)} to ${duration(latencies.max)}, mean ${duration(latencies.mean)} · `
    : '';
  return `${reports} in this time · ${all}between ${dateTime(flow.first_seen).slice(11, 16)} and ${dateTime(flow.last_seen).slice(11, 16)}`;
}

/** Not every hop of the path is stored. */
function truncation(flow: FlowDetail): string {
  return flow.truncated ? `path truncated: ${flow.hops.length} of ${flow.path_length} hops · ` : '';
}

/** The path as stations on a line; each station's bar is its share of the latency. */
function pathStrip() {
  const element = h('ol', { class: 'path-strip', aria: { label: 'Path, in forwarding order' } });
  return {
    element,
    update(hops: readonly FlowHop[]): void {
      const most = Math.max(1, ...hops.map((hop) => hop.hop_latency ?? 0));
      while (element.children.length > hops.length) element.lastElementChild?.remove();
      while (element.children.length < hops.length) element.append(station());
      hops.forEach((hop, i) => fillStation(element.children[i], hop, most));
    },
  };
}

function station(): HTMLElement {
  return h('li', {}, h('span', { class: 'ports' }), h('a'), h('b'), h('i', { class: 'meter' }, h('i')));
}

function fillStation(element: Element | undefined, hop: FlowHop, most: number): void {
  const [ports, node, latency, meter] = element?.children ?? [];
  if (!ports || !(node instanceof HTMLAnchorElement) || !latency) return;
  // Of another time, interfaces are not stored.
  const through = [port(hop, hop.ingress_if), port(hop, hop.egress_if)];
  setText(ports, through.some((name) => name !== '') ? through.join(' → ') : '');
  setText(node, hop.node === null ? '?' : names.node(hop.node));
  if (hop.node !== null) node.href = link('topology', String(hop.node));
  setText(latency, latencyText(hop));
  markImplausible(latency, hop);
  const bar = meter?.firstElementChild;
  if (bar instanceof HTMLElement) bar.style.width = `${(100 * (hop.hop_latency ?? 0)) / most}%`;
}

/** The name of an interface of a hop, or its number; empty where it is not known. */
function port(hop: FlowHop, id: number | null): string {
  return id === null ? '' : names.interface(hop.node, id);
}

const IMPLAUSIBLE =
  'Implausible and not used: longer than max_hop_latency of the profile, or its ingress timestamp is 0 or later than the egress timestamp';

function markImplausible(element: Element, hop: FlowHop): void {
  if (!(element instanceof HTMLElement)) return;
  const marked = isImplausible(hop);
  element.classList.toggle('muted', marked);
  element.title = marked ? IMPLAUSIBLE : '';
}

type Row = FlowHop & { index: number; share: number };

function hopTable() {
  const table = new LiveTable<Row>({
    label: 'Hops, in forwarding order',
    empty: 'The latest report named no hop.',
    columns: [
      ...hopColumns(),
      // Nothing of another time is from now.
      ...(times.isLive() ? nowColumns() : []),
    ],
  });
  return {
    element: table.element,
    sheet: () => table.sheet(),
    update(hops: readonly FlowHop[]): void {
      const total = hops.reduce((sum, hop) => sum + (hop.hop_latency ?? 0), 0);
      table.update(
        hops.map((hop, index) => ({ ...hop, index, share: (hop.hop_latency ?? 0) / Math.max(1, total) })),
      );
    },
  };
}

function hopColumns(): Column<Row>[] {
  return [
    { title: '#', numeric: true, cell: (row) => String(row.index + 1) },
    {
      title: 'Node',
      cell: (row) =>
        row.node === null ? '?' : { text: names.node(row.node), href: link('topology', String(row.node)) },
    },
    {
      title: 'In',
      hint: 'Ingress interface',
      numeric: true,
      cell: (row) => port(row, row.ingress_if) || '–',
    },
    {
      title: 'Out',
      hint: 'Egress interface',
      numeric: true,
      cell: (row) => port(row, row.egress_if) || '–',
    },
    { title: 'Queue', hint: 'Id of the queue', numeric: true, cell: (row) => number(row.queue) },
    {
      title: 'Hop latency',
      class: 'grow',
      numeric: true,
      file: { value: (row) => (isImplausible(row) ? null : row.hop_latency), unit: 'ns' },
      cell: (row) =>
        isImplausible(row)
          ? {
              text: latencyText(row),
              class: 'muted',
              title: IMPLAUSIBLE,
            }
          : { text: latencyText(row), bar: row.share },
    },
    {
      title: 'Share',
      hint: 'Of the sum of all hop latencies, without links',
      numeric: true,
      file: { value: (row) => row.share, unit: 'fraction' },
      cell: (row) => (row.hop_latency === null ? '–' : percent(row.share)),
    },
    {
      title: 'Occupancy',
      hint: 'Of the queue, in device units, when the latest packet of this flow passed',
      numeric: true,
      file: { value: (row) => row.queue_occupancy, unit: 'device units' },
      cell: (row) => inUnits(row.queue_occupancy),
    },
    {
      title: 'Link',
      hint: 'Utilization of the egress link when the latest packet of this flow passed',
      numeric: true,
      file: { value: (row) => row.link_utilization, unit: 'fraction' },
      cell: (row) => percent(row.link_utilization),
    },
  ];
}

/** What other flows have reported since, of the queue and of the link. */
function nowColumns(): Column<Row>[] {
  return [
    {
      title: 'Queue now',
      hint: 'Latest occupancy of the queue, in device units, from a packet of any flow, and its age',
      numeric: true,
      class: 'muted',
      file: { value: (row) => row.latest_queue_occupancy, unit: 'device units' },
      cell: (row) => aged(inUnits(row.latest_queue_occupancy), row.latest_queue_age_s),
    },
    {
      title: 'Link now',
      hint: 'Latest utilization of the egress link, from a packet of any flow, and its age',
      numeric: true,
      class: 'muted',
      file: { value: (row) => row.latest_link_utilization, unit: 'fraction' },
      cell: (row) => aged(percent(row.latest_link_utilization), row.latest_link_age_s),
    },
  ];
}

/** A queue's occupancy; its unit is that of the device. */
function inUnits(value: number | null): string {
  return value === null ? '–' : `${count(value)} units`;
}

function aged(value: string, seconds: number | null): string {
  return seconds === null ? '–' : `${value} · ${seconds} s ago`;
}

function number(value: number | null): string {
  return value === null ? '–' : String(value);
}
