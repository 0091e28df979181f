import { get } from '../api/client';
import { poll } from '../api/poll';
import type { Flow, Rollup } from '../api/types';
import { LineChart } from '../charts/line';
import { code, h, panel, setText, show } from '../lib/dom';
import { count, duration, span } from '../lib/format';
import { names } from '../lib/names';
import { live } from '../live';
import { listenText } from '../model/inputs';
import { WINDOW_SECONDS, worstByNode } from '../model/rates';
import type { Page } from '../router';
import { times } from '../times';
import { budgetView } from './overview-budget';
import { overviewPastPage } from './overview-past';
import { fillPanel, flowTable, inputTable, sourceTable, storePanel } from './overview-tables';

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
  const inputs = inputTable();
  const tables = fillPanel();
  const store = storePanel();
  const hint = emptyHint();
  const uptime = h('span', { class: 'muted' });
  const element = h(
    'div',
    { class: 'page overview' },
    hint.element,
    panel('Loss budget', { class: 'wide', aside: uptime }, budget.element),
    panel('Reports per second', { aside: rates.reportsNow }, rates.reports.element),
    panel('Events per second', { aside: rates.eventsNow }, rates.events.element),
    panel('Hop latency p99', { aside: waits.legend }, waits.chart.element),
    panel('Slowest flows', { class: 'two' }, flows.element),
    panel('Tables', {}, tables.element, store.element),
    panel('Inputs', { class: 'wide' }, inputs.element),
    panel('Sources', { class: 'wide' }, sources.element),
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
    tables.update(status.tables);
    store.update(status);
  });
  const flowPoll = poll<{ flows: Flow[] }>({
    intervalMs: 2000,
    request: (signal) => get('flows', { sort: 'latency', limit: 10 }, signal),
    show: (answer) => flows.update(answer.flows),
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

function rateCharts() {
  const now = (): number => live.now();
  const options = { format: count, now, sync: SYNC };
  const reports = new LineChart([{ label: 'reports/s', colour: 'accent', fill: true, bridge: true }], {
    ...options,
    label: 'Reports per second, last 15 minutes',
  });
  const events = new LineChart([{ label: 'events/s', colour: 'series-3', fill: true }], {
    ...options,
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
    now: () => live.now(),
    sync: SYNC,
  });
  const legend = h('span', { class: 'legend' });
  let kept: Rollup[] = [];
  const wait = poll<{ rollups: Rollup[] }>({
    intervalMs: 2000,
    request: async (signal) => {
      if (!live.hasStore()) return { rollups: [] };
      const requested = { metric: 'hop_latency', interval: 1, from: fromTime(kept), limit: 10_000 };
      return get<{ rollups: Rollup[] }>('rollups', requested, signal);
    },
    show(answer) {
      kept = mergeRollups(kept, answer.rollups, live.now() - WINDOW_SECONDS * 1e9);
      const { keys, times, values, nodes } = worstByNode(kept, WORST_NODES);
      const series = keys.map((key, i) => ({ label: names.node(Number(key)), colour: `series-${i + 1}` }));
      chart.update([times, ...values], series);
      setLegend(legend, series, nodes);
    },
  });
  return {
    chart,
    legend,
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
