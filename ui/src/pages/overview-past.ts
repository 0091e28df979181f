import { get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { Activity, Flow, Heat, Range } from '../api/types';
import { LineChart } from '../charts/line';
import { h, panel, setText } from '../lib/dom';
import { count, duration, exact, span } from '../lib/format';
import { names } from '../lib/names';
import { LiveTable } from '../lib/table';
import { kindLabel } from '../model/events';
import { activityColumns, heatColumns } from '../model/activity';
import { link, type Page } from '../router';
import { partText } from '../model/range';
import { times } from '../times';
import { flowTable } from './overview-tables';

const SYNC = 'overview';
const WORST_NODES = 6;
const COLUMNS = 300;
/** Between two questions about a time that ends now. */
const SLOW_MS = 10_000;

/** What happened in a chosen time, from the store. */
export function overviewPastPage(): Page {
  const message = h('p', { class: 'table-note wide', role: 'status' });
  const failed = (error: unknown): void =>
    setText(message, error instanceof Error ? error.message : String(error));
  const options = { now: () => times.now() * 1e6, sync: SYNC };
  const reports = new LineChart([{ label: 'reports/s', colour: 'accent', fill: true }], {
    ...options,
    format: count,
    label: 'Reports per second',
  });
  const events = new LineChart([{ label: 'events/s', colour: 'series-3', fill: true }], {
    ...options,
    format: count,
    label: 'Events per second',
  });
  const latency = new LineChart([], { ...options, format: duration, label: 'Greatest hop latency by node' });
  const legend = h('span', { class: 'legend' });
  const [reportsSum, eventsSum] = [h('strong', { class: 'figure' }), h('strong', { class: 'figure' })];
  const lost = h('p', {});
  const part = h('p', { class: 'table-note' });
  const flows = flowTable();
  flows.setEmpty('No reports of flows in this time.');
  const kinds = kindTable();
  const ask = <T>(path: string, query: Record<string, string | number>, show: (answer: T) => void): Poll =>
    poll<T>({
      intervalMs: () => times.intervalMs(SLOW_MS),
      request: (signal) => get<T>(path, { ...times.query(), ...query }, signal),
      show(answer) {
        setText(message, '');
        show(answer);
      },
      failed,
    });
  const polls = [
    ask<Activity>('activity', { columns: COLUMNS }, (activity) => {
      const columns = activityColumns(activity);
      reports.update([columns.times, columns.reports]);
      events.update([columns.times, columns.events]);
      setText(reportsSum, `${count(columns.totals.reports)} reports`);
      setText(eventsSum, `${count(columns.totals.events)} events`);
      setText(lost, lostText(columns.totals.lost));
      lost.classList.toggle('bad', columns.totals.lost > 0);
      kinds.update(Object.entries(activity.kinds).sort(([, a], [, b]) => b - a));
    }),
    ask<Heat>('queues', { metric: 'hop_latency', columns: COLUMNS, limit: WORST_NODES }, (heat) => {
      const { axis, values, labels } = heatColumns(heat, (node) => names.node(node));
      const series = labels.map((label, i) => ({ label, colour: `series-${i + 1}` }));
      latency.update([axis, ...values], series);
      const rest =
        heat.total > labels.length ? [h('span', {}, `worst ${labels.length} of ${heat.total}`)] : [];
      const entries = series.map(({ label, colour }) =>
        h('span', {}, h('i', { class: 'swatch', style: `background:var(--${colour})` }), label),
      );
      legend.replaceChildren(...entries, ...rest);
    }),
    ask<{ flows: Flow[]; range?: Range | null }>('flows', { sort: 'latency', limit: 10 }, (answer) => {
      flows.update(answer.flows);
      setText(part, partText(answer));
    }),
  ];
  const note = h(
    'p',
    { class: 'table-note' },
    'The loss budget, inputs and tables count since the start of the program: they are shown with ',
    h('em', {}, 'now'),
    '.',
  );
  return {
    element: h(
      'div',
      { class: 'page overview' },
      message,
      panel('Reports per second', { aside: reportsSum }, reports.element),
      panel('Events per second', { aside: eventsSum }, events.element),
      panel('Greatest hop latency', { aside: legend }, latency.element),
      panel('Slowest flows', { class: 'two' }, flows.element, part),
      panel('Events by kind', {}, kinds.element, lost, note),
    ),
    stop() {
      for (const one of polls) one.stop();
      for (const chart of [reports, events, latency]) chart.destroy();
    },
  };
}

function lostText(lost: number): string {
  return lost === 0 ? 'No report was lost on the way.' : `${exact(lost)} reports never arrived.`;
}

function kindTable() {
  return new LiveTable<[string, number]>({
    label: 'Events by kind',
    empty: 'No events in this time.',
    columns: [
      {
        title: 'Kind',
        class: 'grow',
        cell: ([kind]) => ({ text: kindLabel(kind), href: times.carry(link('events', '', { kind })) }),
      },
      { title: 'Events', numeric: true, cell: ([, number]) => exact(number) },
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
