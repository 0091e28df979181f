import { get } from '../api/client';
import { poll } from '../api/poll';
import type { Flow, Rollup } from '../api/types';
import { LineChart } from '../charts/line';
import { code, h, panel, setText, show } from '../lib/dom';
import { count, duration, span } from '../lib/format';
import { names } from '../lib/names';
import type { Sheet } from '../lib/sheet';
import { live } from '../live';
import { apiOption, hands } from '../hands';
import { hopwise, queryCommand, rollupsSql, type Asked } from '../model/copies';
import { inOrder } from '../model/flows';
import { listenText } from '../model/inputs';
import { RATE_SECONDS, WINDOW_SECONDS, worstByNode } from '../model/rates';
import type { Page } from '../router';
import { times } from '../times';
import { budgetView } from './overview-budget';
import { overviewPastPage } from './overview-past';
import {
  fillPanel,
  flowTable,
  inputTable,
  problemTable,
  shownOf,
  sourceTable,
  storePanel,
} from './overview-tables';

const SYNC = 'overview';
const WORST_NODES = 6;

/** Input rate, losses, and the slowest nodes; of another time, what the store has of it. */
export function overviewPage(): Page {
  return times.isLive() ? livePage() : overviewPastPage();
}

function livePage(): Page {
  const rates = rateCharts();
  const waits = latencyChart();
  const budget = budgetView();
  const flows = flowTable();
  const sources = sourceTable();
  const sourcesShown = h('span');
  const inputs = inputTable();
  const tables = fillPanel();
  const store = storePanel();
  const hint = emptyHint();
  const uptime = h('span', { class: 'muted' });
  const problems = problemTable();
  const problemPanel = panel(
    'Files of the store',
    { class: 'wide', hands: status('Files of the store', () => problems.sheet()) },
    problems.element,
  );
  const element = h(
    'div',
    { class: 'page overview' },
    hint.element,
    panel(
      'Loss budget',
      { class: 'wide', aside: uptime, hands: status('Loss budget', budget.sheet) },
      budget.element,
    ),
    problemPanel,
    panel(
      'Reports per second',
      {
        aside: h(
          'span',
          { title: 'Before the start of the program: rates per minute' },
          rates.reportsNow,
          MEAN,
        ),
        hands: activity('Reports per second', rates.reports),
      },
      rates.reports.element,
    ),
    panel(
      'Events per second',
      { aside: h('span', {}, rates.eventsNow, MEAN), hands: activity('Events per second', rates.events) },
      rates.events.element,
    ),
    panel('Hop latency p99', { aside: waits.legend, hands: waits.hands }, waits.chart.element),
    panel(
      'Slowest flows',
      {
        class: 'two',
        hands: hands({
          title: 'Slowest flows',
          now: () => true,
          asked: () => [SLOWEST],
          command: () => hopwise('top', { view: 'flows', sort: 'latency', api: apiOption() }),
          sheet: () => flows.sheet(FIRST_FLOWS),
        }),
      },
      flows.element,
    ),
    panel('Tables', { hands: status('Tables', () => tables.sheet()) }, tables.element, store.element),
    panel('Inputs', { class: 'wide', hands: status('Inputs', () => inputs.sheet()) }, inputs.element),
    panel(
      'Sources',
      { class: 'wide', aside: sourcesShown, hands: status('Sources', () => sources.sheet()) },
      sources.element,
    ),
  );
  const endLive = live.watch(() => {
    const { status } = live;
    if (!status) return;
    flows.explain(status);
    setText(hint.listen, listenText(status.inputs));
    show(hint.element, status.rates.reports === 0 && status.sources.length === 0);
    setText(uptime, `since start, ${span(status.uptime_s)} ago`);
    budget.update(status);
    rates.update();
    inputs.update(status.inputs);
    sources.update(status.sources);
    setText(sourcesShown, shownOf(status.sources.length, status.sources_total));
    tables.update(status.tables);
    store.update(status);
    problems.update(status.store?.problems ?? []);
    show(problemPanel, (status.store?.problems.length ?? 0) > 0);
  });
  const flowPoll = poll<{ flows: Flow[] }>({
    intervalMs: 2000,
    request: (signal) => get(SLOWEST.path, SLOWEST.params, signal),
    show: (answer) => flows.update(inOrder(answer.flows, 'latency')),
  });
  return {
    element,
    stop() {
      endLive();
      flowPoll.stop();
      rates.destroy();
      waits.destroy();
    },
  };
}

/** What a rate is, beside its chart. */
const MEAN = ` mean of ${RATE_SECONDS} s`;

const MAX_FLOWS = 10;
const SLOWEST = { path: 'flows', params: { sort: 'latency', limit: MAX_FLOWS } };
const FIRST_FLOWS = `The ${MAX_FLOWS} slowest flows; there may be more.`;

/** What a part of the status says. */
function status(title: string, sheet: () => Sheet | null): HTMLElement {
  return hands({ title, now: () => true, asked: () => [{ path: 'status' }], sheet });
}

/** The server counts over time what the page has counted since it was opened. */
function activity(title: string, chart: LineChart): HTMLElement {
  const asked = (): Asked[] => [{ path: 'activity', params: { ...times.span(), columns: WINDOW_SECONDS } }];
  return hands({ title, asked, sheet: () => chart.sheet() });
}

function rateCharts() {
  const now = (): number => live.now();
  const options = { format: count, now, sync: SYNC };
  const reports = new LineChart([{ label: 'reports/s', colour: 'accent', fill: true, bridge: true }], {
    ...options,
    unit: 'reports/s',
    label: 'Reports per second, last 15 minutes',
  });
  const events = new LineChart([{ label: 'events/s', colour: 'series-3', fill: true }], {
    ...options,
    unit: 'events/s',
    label: 'Events per second, last 15 minutes',
  });
  const reportsNow = h('strong', { class: 'figure' });
  const eventsNow = h('strong', { class: 'figure' });
  return {
    reports,
    events,
    reportsNow,
    eventsNow,
    update() {
      const [times, reportRates = [], eventRates = []] = live.rates.data();
      reports.update([times, reportRates]);
      events.update([times, eventRates]);
      setText(reportsNow, count(live.status?.rates.reports));
      setText(eventsNow, count(live.status?.rates.events));
    },
    destroy() {
      reports.destroy();
      events.destroy();
    },
  };
}

/** Where packets wait: the nodes with the worst 99th percentile. */
function latencyChart() {
  const chart = new LineChart([], {
    label: 'Hop latency by node, 99th percentile, last 15 minutes',
    format: duration,
    unit: 'ns',
    unitInFormat: true,
    now: () => live.now(),
    sync: SYNC,
  });
  const legend = h('span', { class: 'legend' });
  let kept: Rollup[] = [];
  let left = 0;
  const whole = (): { metric: string; interval: number; from: string; limit: number } => ({
    metric: 'hop_latency',
    interval: 1,
    from: times.span().from,
    limit: 10_000,
  });
  const wait = poll<{ rollups: Rollup[] }>({
    intervalMs: 2000,
    request: async (signal) => {
      if (!live.hasStore()) return { rollups: [] };
      const requested = { ...whole(), from: fromTime(kept) };
      return get<{ rollups: Rollup[] }>('rollups', requested, signal);
    },
    show(answer) {
      kept = mergeRollups(kept, answer.rollups, live.now() - WINDOW_SECONDS * 1e9);
      const { keys, times, values, nodes } = worstByNode(kept, WORST_NODES);
      const series = keys.map((key, i) => ({ label: names.node(Number(key)), colour: `series-${i + 1}` }));
      chart.update([times, ...values], series);
      setLegend(legend, series, nodes);
      left = nodes - series.length;
    },
  });
  return {
    chart,
    legend,
    hands: hands({
      title: 'Hop latency p99',
      asked: () => [{ path: 'rollups', params: whole() }],
      sql: () => rollupsSql(whole()),
      command: () => queryCommand(rollupsSql(whole()), whole().limit),
      sheet: () => chart.sheet(left > 0 ? `The worst ${WORST_NODES} of ${WORST_NODES + left} nodes.` : ''),
    }),
    destroy() {
      wait.stop();
      chart.destroy();
    },
  };
}

/** Queries the last seconds again, which may have been incomplete. */
function fromTime(kept: readonly Rollup[]): string {
  const newest = kept[kept.length - 1]?.ts;
  const start = newest === undefined ? live.now() - WINDOW_SECONDS * 1e9 : newest - 3e9;
  return BigInt(Math.round(start)).toString();
}

function mergeRollups(kept: readonly Rollup[], fresh: readonly Rollup[], oldest: number): Rollup[] {
  const cut = fresh.reduce((least, rollup) => Math.min(least, rollup.ts), Infinity);
  const merged = [...kept.filter((rollup) => rollup.ts < cut && rollup.ts >= oldest), ...fresh];
  return merged.sort((a, b) => a.ts - b.ts);
}

function setLegend(
  element: HTMLElement,
  series: readonly { label: string; colour: string }[],
  nodes: number,
): void {
  const worst = nodes > series.length ? `worst ${series.length} of ${nodes}` : null;
  const text = `${series.map(({ label }) => label).join('|')} ${worst}`;
  if (element.dataset['shown'] === text) return;
  element.dataset['shown'] = text;
  const entries = series.map(({ label, colour }) =>
    h('span', {}, h('i', { class: 'swatch', style: `background:var(--${colour})` }), label),
  );
  element.replaceChildren(...entries, ...(worst === null ? [] : [h('span', {}, worst)]));
}

function emptyHint(): { element: HTMLElement; listen: HTMLElement } {
  const listen = h('strong', {});
  const element = h(
    'section',
    { class: 'hint wide' },
    h('h2', {}, 'No reports yet'),
    h(
      'p',
      {},
      'Point your switches’ INT reports at this machine, ',
      listen,
      '; they show up here within a second. No switch at hand? Stop this program and run ',
      code('hopwise demo'),
      ': a simulated fabric that sends real reports. A capture can be pushed through with ',
      code('hopwise replay FILE.pcap'),
      '.',
    ),
  );
  element.hidden = true;
  return { element, listen };
}
