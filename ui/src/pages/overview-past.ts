import { get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Activity, Flow, Heat, Range } from '../api/types';
import { LineChart } from '../charts/line';
import { h, panel, setText } from '../lib/dom';
import { count, duration, exact, reasonOf, span } from '../lib/format';
import { hands, sqlSpan } from '../hands';
import { names } from '../lib/names';
import { LiveTable } from '../lib/table';
import { kindLabel } from '../model/events';
import { activityColumns, heatColumns } from '../model/activity';
import { eventRatesSql, heatSql, kindsSql, queryCommand, slowestFlowsSql, type Asked } from '../model/copies';
import * as ofFleet from '../model/fleet-sql';
import type { Fleet } from '../model/fleet-sql';
import { link, type Page } from '../router';
import { partText, rangeText } from '../model/range';
import { session } from '../session';
import { times } from '../times';
import { flowTable } from './overview-tables';

const SYNC = 'overview';
const WORST_NODES = 6;
const COLUMNS = 300;
const ACTIVITY = { path: 'activity', params: { columns: COLUMNS } };
const LATENCY = { path: 'queues', params: { metric: 'hop_latency', columns: COLUMNS, limit: WORST_NODES } };
const SLOWEST = { path: 'flows', params: { sort: 'latency', limit: 10 } };
/** Between two questions about a time that ends now. */
const SLOW_MS = 10_000;

/** What happened in a chosen time, from the store. */
export function overviewPastPage(): Page {
  const message = h('p', { class: 'table-note wide', role: 'status' });
  const failed = (error: unknown): void => setText(message, reasonOf(error));
  const options = { now: () => times.now() * 1e6, sync: SYNC };
  const reports = new LineChart([{ label: 'reports/s', colour: 'accent', fill: true }], {
    ...options,
    format: count,
    unit: 'reports/s',
    label: 'Reports per second',
  });
  const events = new LineChart([{ label: 'events/s', colour: 'series-3', fill: true }], {
    ...options,
    format: count,
    unit: 'events/s',
    label: 'Events per second',
  });
  const latency = new LineChart([], {
    ...options,
    format: duration,
    unit: 'ns',
    unitInFormat: true,
    label: 'Greatest hop latency by node',
  });
  const legend = h('span', { class: 'legend' });
  const [reportsSum, eventsSum] = [h('strong', { class: 'figure' }), h('strong', { class: 'figure' })];
  const means = [h('span', {}), h('span', {})] as const;
  const lost = h('p', {});
  const part = h('p', { class: 'table-note' });
  const flows = flowTable();
  flows.setEmpty('No reports of flows with a latency in this time.');
  const kinds = kindTable();
  const copied = copies();
  const ask = <T>({ path, params }: Asked, show: (answer: T) => void): Poll =>
    poll<T>({
      intervalMs: () => times.intervalMs(SLOW_MS),
      request: (signal) => get<T>(path, { ...times.query(), ...params }, signal),
      show(answer) {
        setText(message, '');
        show(answer);
      },
      failed,
    });
  const showHeat = (heat: Heat): void => {
    copied.heat = heat;
    const { axis, values, labels } = heatColumns(heat, (node) => names.node(node));
    const series = labels.map((label, i) => ({ label, colour: `series-${i + 1}` }));
    latency.update([axis, ...values], series);
    const rest = heat.total > labels.length ? [h('span', {}, `worst ${labels.length} of ${heat.total}`)] : [];
    const entries = series.map(({ label, colour }) =>
      h('span', {}, h('i', { class: 'swatch', style: `background:var(--${colour})` }), label),
    );
    legend.replaceChildren(...entries, ...rest);
  };
  const polls = [
    ask<Activity>(ACTIVITY, (activity) => {
      copied.activity = activity;
      const columns = activityColumns(activity);
      reports.update([columns.times, columns.reports]);
      events.update([columns.times, columns.events]);
      setText(reportsSum, `${count(columns.totals.reports)} reports`);
      setText(eventsSum, `${count(columns.totals.events)} events`);
      const which = times.isPast() ? 'in this time' : `in ${rangeText(times.range, times.now())}`;
      for (const mean of means) setText(mean, ` ${which} · means of ${span(activity.column / 1e9)}`);
      setText(lost, lostText(columns.totals.lost));
      lost.classList.toggle('bad', columns.totals.lost > 0);
      kinds.update(Object.entries(activity.kinds).sort(([, a], [, b]) => b - a));
    }),
    ask<Heat>(LATENCY, showHeat),
    ask<{ flows: Flow[]; range?: Range | null; total: number }>(SLOWEST, (answer) => {
      copied.flows = answer;
      flows.update(answer.flows);
      setText(part, partText(answer));
    }),
  ];
  const ofCollector = 'The loss budget, inputs and tables are on the pages of each collector.';
  const counted = [
    'The loss budget, inputs and tables count since the start of the program: they are on the live page, ',
    h('em', {}, '15 min'),
    '.',
  ];
  const note = h('p', { class: 'table-note' }, ...(session.console ? [ofCollector] : counted));
  return {
    element: h(
      'div',
      { class: 'page overview' },
      message,
      panel(
        'Reports per second',
        { aside: h('span', {}, reportsSum, means[0]), hands: copied.reports(reports) },
        reports.element,
      ),
      panel(
        'Events per second',
        { aside: h('span', {}, eventsSum, means[1]), hands: copied.events(events) },
        events.element,
      ),
      panel('Greatest hop latency', { aside: legend, hands: copied.latency(latency) }, latency.element),
      panel('Slowest flows', { class: 'two', hands: copied.slowest(flows) }, flows.element, part),
      panel('Events by kind', { hands: copied.kinds(kinds) }, kinds.element, lost, note),
    ),
    stop() {
      for (const one of polls) one.stop();
      for (const chart of [reports, events, latency]) chart.destroy();
    },
  };
}

/** With the time of the page. */
function ranged({ path, params }: Asked): Asked[] {
  return [{ path, params: { ...times.span(), ...params } }];
}

/** What can be copied and saved, by the last answers: the server may have made whole minutes of the time. */
function copies() {
  const last: {
    activity: Activity | null;
    heat: Heat | null;
    flows: { range?: Range | null; flows: Flow[]; total: number } | null;
  } = { activity: null, heat: null, flows: null };
  const withSql = (sql: () => string | null, fleetSql: (fleet: Fleet) => string | null) => ({
    sql,
    fleetSql,
    command: () => {
      const text = sql();
      return text === null ? null : queryCommand(text);
    },
  });
  const cutText = (shown: number, total: number, noun: string): string =>
    total > shown ? `The worst ${shown} of ${total} ${noun}.` : '';
  return Object.assign(last, {
    reports: (chart: LineChart) =>
      hands({ title: 'Reports per second', asked: () => ranged(ACTIVITY), sheet: () => chart.sheet() }),
    events: (chart: LineChart) =>
      hands({
        title: 'Events per second',
        asked: () => ranged(ACTIVITY),
        ...withSql(
          () => last.activity && eventRatesSql(sqlSpan(last.activity), last.activity.column),
          (fleet) =>
            last.activity && ofFleet.eventRatesSql(fleet, sqlSpan(last.activity), last.activity.column),
        ),
        sheet: () => chart.sheet(),
      }),
    latency: (chart: LineChart) =>
      hands({
        title: 'Greatest hop latency',
        asked: () => ranged(LATENCY),
        ...withSql(
          () => last.heat && heatSql(sqlSpan(last.heat), { ...last.heat, rows: WORST_NODES }),
          (fleet) =>
            last.heat && ofFleet.heatSql(fleet, sqlSpan(last.heat), { ...last.heat, rows: WORST_NODES }),
        ),
        sheet: () => chart.sheet(last.heat ? cutText(last.heat.rows.length, last.heat.total, 'nodes') : ''),
      }),
    slowest: (table: ReturnType<typeof flowTable>) =>
      hands({
        title: 'Slowest flows',
        asked: () => ranged(SLOWEST),
        ...withSql(
          () => (last.flows?.range ? slowestFlowsSql(sqlSpan(last.flows.range), SLOWEST.params.limit) : null),
          (fleet) =>
            last.flows?.range
              ? ofFleet.slowestFlowsSql(fleet, sqlSpan(last.flows.range), SLOWEST.params.limit)
              : null,
        ),
        sheet: () =>
          table.sheet(last.flows ? cutText(last.flows.flows.length, last.flows.total, 'flows') : ''),
      }),
    kinds: (table: LiveTable<[string, number]>) =>
      hands({
        title: 'Events by kind',
        asked: () => ranged(ACTIVITY),
        ...withSql(
          () => last.activity && kindsSql(sqlSpan(last.activity)),
          (fleet) => last.activity && ofFleet.kindsSql(fleet, sqlSpan(last.activity)),
        ),
        sheet: () => table.sheet(),
      }),
  });
}

function lostText(lost: number): string {
  return lost === 0 ? 'No reports lost in transit.' : `${exact(lost)} reports never arrived.`;
}

function kindTable() {
  return new LiveTable<[string, number]>({
    label: 'Events by kind',
    empty: 'No events in this time.',
    columns: [
      {
        title: 'Kind',
        class: 'grow',
        file: { value: ([kind]) => kind },
        cell: ([kind]) => ({ text: kindLabel(kind), href: times.carry(link('events', '', { kind })) }),
      },
      {
        title: 'Events',
        numeric: true,
        file: { value: ([, number]) => number },
        cell: ([, number]) => exact(number),
      },
      {
        title: 'per second',
        numeric: true,
        cell: ([, number]) => {
          const { from, to } = times.limits();
          const seconds = Math.max(1, (to - from) / 1000);
          return { text: count(number / seconds), title: `in ${span(seconds)}` };
        },
      },
    ],
  });
}
