import { get } from '../api/client';
import type { Burst } from '../api/types';
import { PacketChart } from '../charts/packets';
import { hands } from '../hands';
import { atCollectors } from '../elsewhere';
import { h, panel, setText, show } from '../lib/dom';
import { bothTimes, count, dateTime, duration, flowName, pathText, plural, reasonOf } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { LiveTable, type CellView } from '../lib/table';
import { live } from '../live';
import type { Asked as Request } from '../model/copies';
import { doubts, rowName, verdict } from '../model/heat';
import { watchQueue } from '../model/watch';
import { link } from '../router';
import { session } from '../session';

/** After so long nothing more is recorded of a time. */
const RECORDED_MS = 6_000;
const AGAIN_MS = 2_000;
const MAX_FLOWS = 50;

type Part = Burst['flows'][number] & { place: number };
type Change = Burst['changes'][number];

export interface Asked {
  node: string;
  /** Empty: all queues of the node. */
  queue: string;
  /** The egress interface. Empty: all of them. */
  port: string;
  /** ms. */
  from: number;
  to: number;
}

export interface BurstPanel {
  element: HTMLElement;
  show(asked: Asked): void;
  clear(): void;
  stop(): void;
}

/** Who filled a queue, who waited in it, and what was dropped. */
export function burstPanel(close: () => void): BurstPanel {
  const title = h('h3', {});
  const answer = h('p', { class: 'verdict-text', role: 'status' });
  const facts = h('p', { class: 'muted' });
  const notes = h('ul', { class: 'notes' });
  const chart = new PacketChart();
  const flows = flowTable();
  const changes = changeTable();
  const watch = h('a', { class: 'button' }, 'Watch this queue');
  const closing = h('button', { type: 'button', on: { click: close } }, 'Close');
  let shown: { asked: Asked; burst: Burst | null } | null = null;
  const asked = (): Request[] => (shown === null ? [] : [requestOf(shown.asked)]);
  const packets = hands({
    title: 'Packets of the burst',
    asked,
    sheet: () => chart.sheet(),
    drawing: () => chart.element,
  });
  const element = panel(
    'Who filled the queue',
    {
      class: 'wide burst',
      aside: h('span', { class: 'bar' }, watch, closing),
      hands: hands({
        title: 'Who filled the queue',
        asked,
        sheet: () => (shown?.burst ? burstSheet(shown.burst, flows, changes) : null),
        drawing: () => flows.element,
      }),
    },
    title,
    answer,
    facts,
    h('div', { class: 'chart-hands' }, packets),
    chart.element,
    flows.element,
    changes.element,
    notes,
  );
  show(element, false);
  // Intents are made where the manager is.
  show(watch, !session.console);
  let current = '';
  let control: AbortController | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;

  function fill(burst: Burst): void {
    setText(answer, verdict(burst) || withoutReports(burst));
    setText(facts, factsText(burst));
    if (shown) shown.burst = burst;
    facts.title = burst.peak === null ? '' : bothTimes(burst.peak);
    show(packets, burst.peak !== null);
    show(chart.element, burst.peak !== null);
    show(flows.element, burst.flows.length > 0);
    show(changes.element, burst.changes.length > 0);
    flows.update(burst.flows.map((part, place) => ({ ...part, place })));
    changes.update(burst.changes);
    chart.update(burst);
    const heard = burst.collectors ?? [];
    const where = heard.length === 0 ? [] : [atCollectors('Reports of the node were received by ', heard)];
    const said = [...doubts(burst).map((text) => [text]), ...where];
    notes.replaceChildren(...said.map((parts) => h('li', {}, ...parts)));
  }

  return {
    element,
    show(asked) {
      const key = JSON.stringify(asked);
      if (key === current) return;
      current = key;
      clearTimeout(again);
      control?.abort();
      control = new AbortController();
      show(element, true);
      shown = { asked, burst: null };
      const node = Number(asked.node);
      const queue = asked.queue === '' ? null : Number(asked.queue);
      const port = asked.port === '' ? null : Number(asked.port);
      const where = rowName({ node, queue, interface: port });
      setText(title, `${where}, ${dateTime(asked.from * 1e6).slice(0, 19)}`);
      title.title = bothTimes(asked.from * 1e6);
      watch.setAttribute('href', link('intents', 'new', watchQueue(node, queue, port)));
      setText(answer, 'Reading …');
      setText(facts, '');
      notes.replaceChildren();
      for (const part of [chart.element, packets, flows.element, changes.element]) show(part, false);
      const { path, params } = requestOf(asked);
      const read = (signal: AbortSignal): void => {
        get<Burst>(path, params, signal)
          .then((burst) => {
            if (key !== current) return;
            fill(burst);
            // What is recorded of the last seconds comes later.
            if (live.now() / 1e6 < asked.to + RECORDED_MS) again = setTimeout(() => read(signal), AGAIN_MS);
          })
          .catch((error: unknown) => {
            if (key !== current || signal.aborted) return;
            setText(answer, reasonOf(error));
            // The same cell may be chosen again.
            current = '';
          });
      };
      read(control.signal);
    },
    clear() {
      current = '';
      clearTimeout(again);
      control?.abort();
      show(element, false);
    },
    stop() {
      clearTimeout(again);
      control?.abort();
      chart.destroy();
    },
  };
}

function requestOf({ node, queue, port, from, to }: Asked): Request {
  const time = (ms: number): string => `${BigInt(ms) * 1_000_000n}`;
  return {
    path: `queues/${node}`,
    params: { queue, interface: port, from: time(from), to: time(to), limit: MAX_FLOWS },
  };
}

/** The flows that were in the queue, or those whose latency changed. */
function burstSheet(burst: Burst, flows: LiveTable<Part>, changes: LiveTable<Change>): Sheet | null {
  const left = burst.total_flows - burst.flows.length;
  const said = [
    left > 0 ? `The first ${burst.flows.length} of ${burst.total_flows} flows.` : '',
    ...doubts(burst),
  ];
  return flows.sheet(said.filter((text) => text !== '').join(' ')) ?? changes.sheet();
}

function withoutReports(burst: Burst): string {
  const stored = session.console ? 'in ClickHouse' : 'stored';
  const head = `No reports of this time are ${stored}, so the flows that filled the queue are unknown.`;
  if (burst.changes.length === 0) return head;
  return `${head} The hop latency of these flows changed there in that time:`;
}

function factsText(burst: Burst): string {
  if (burst.peak === null) return '';
  const depth = burst.occupancy === null ? '' : `, occupancy ${count(burst.occupancy)}`;
  const causes = [...new Set(burst.recordings.map((one) => one.rule ?? one.kind.replaceAll('_', ' ')))];
  const why = causes.length === 0 ? '' : ` Recorded because of: ${causes.slice(0, 4).join(', ')}.`;
  const drops = burst.drops.map(
    (drop) => `${plural(drop.count, 'drop')} (${drop.name ?? `reason ${drop.reason ?? '?'}`})`,
  );
  const dropped = drops.length === 0 ? '' : ` ${drops.join(', ')}.`;
  const reports = `${plural(burst.reports, 'packet')} reported, ${count(burst.rise)} while it filled.`;
  return `Fullest at ${dateTime(burst.peak).slice(11)}${depth}. ${reports}${dropped}${why}`;
}

function flowTable(): LiveTable<Part> {
  return new LiveTable<Part>({
    label: 'Flows in the queue',
    empty: 'No flows',
    columns: [
      { title: 'Flow', class: 'flow', file: { value: (part) => part.text }, cell: (part) => flowCell(part) },
      {
        title: 'Filled',
        numeric: true,
        file: { value: (part) => part.rise, unit: 'packets' },
        hint: 'Packets that arrived while the queue filled',
        cell: (part) => ({ text: count(part.rise) }),
      },
      {
        title: 'In all',
        numeric: true,
        file: { value: (part) => part.reports, unit: 'packets' },
        hint: 'Packets in the selected time',
        cell: (part) => ({ text: count(part.reports) }),
      },
      {
        title: 'Longest wait',
        numeric: true,
        file: { value: (part) => part.longest, unit: 'ns' },
        hint: 'Longest hop latency of a packet since the queue began to fill',
        cell: (part) => ({ text: duration(part.longest) }),
      },
      { title: 'Path', class: 'path', cell: (part) => ({ text: pathText(part.path) }) },
    ],
  });
}

function flowCell(part: Part): CellView {
  const text = part.flow === null ? 'unknown flow' : flowName(part.flow);
  const href = part.text === null ? undefined : link('flow', part.text);
  return { text, class: `flow-${Math.min(part.place, 8) + 1}`, ...(href === undefined ? {} : { href }) };
}

function changeTable(): LiveTable<Change> {
  return new LiveTable<Change>({
    label: 'Flows whose hop latency changed',
    empty: 'No changes',
    columns: [
      {
        title: 'Flow',
        class: 'flow',
        cell: (one) => ({ text: one.flow === null ? 'unknown flow' : flowName(one.flow) }),
      },
      {
        title: 'Changes',
        numeric: true,
        file: { value: (one) => one.changes },
        cell: (one) => count(one.changes),
      },
      {
        title: 'Greatest hop latency',
        numeric: true,
        file: { value: (one) => one.latency, unit: 'ns' },
        cell: (one) => duration(one.latency),
      },
    ],
  });
}
