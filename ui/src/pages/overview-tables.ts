import type { Drops, FileProblem, Flow, Input, Source, Status, TableFill } from '../api/types';
import { h, setText } from '../lib/dom';
import {
  ago,
  bothTimes,
  bytes,
  count,
  dateTime,
  duration,
  exact,
  flowName,
  pathText,
  percent,
} from '../lib/format';
import { LiveTable, type CellView } from '../lib/table';
import { live } from '../live';
import { basisMark } from '../model/events';
import { dropText, inputState, noFlowsText } from '../model/inputs';
import { names } from '../lib/names';
import { link } from '../router';
import { times } from '../times';

export function flowTable() {
  let most = 1;
  const table = new LiveTable<Flow>({
    label: 'Slowest flows',
    empty: 'No flows yet. A flow appears with its first report.',
    columns: [
      {
        title: 'Flow',
        class: 'grow',
        file: { value: (row) => row.text },
        cell: (row) => ({ text: flowName(row.flow), href: link('flow', row.id), title: row.text }),
      },
      { title: 'Path', class: 'mono wide-only', cell: (row) => pathText(row.path) },
      {
        title: 'Latency',
        hint: 'Live: the latest packet. Past time: the greatest stored value',
        numeric: true,
        file: { value: (row) => row.flow_latency, unit: 'ns' },
        cell: (row) => ({ text: duration(row.flow_latency), bar: (row.flow_latency ?? 0) / most }),
      },
      {
        title: '',
        file: { value: (row) => row.basis, name: 'Basis' },
        cell: (row) => {
          const mark = basisMark(row.basis);
          return mark ? { text: mark.mark, title: mark.hint, class: 'mark' } : '';
        },
      },
      {
        title: 'Reports',
        class: 'wide-only',
        numeric: true,
        file: { value: (row) => row.reports },
        cell: (row) => count(row.reports),
      },
      {
        title: 'Seen',
        class: 'wide-only',
        numeric: true,
        file: { value: (row) => row.last_seen, time: true },
        cell: (row) => seen(row.last_seen),
      },
    ],
  });
  return {
    element: table.element,
    update(rows: Flow[]) {
      most = Math.max(1, ...rows.map((row) => row.flow_latency ?? 0));
      table.update(rows);
    },
    explain(status: Status) {
      table.setEmpty(noFlowsText(status.workers));
    },
    setEmpty: (text: string) => table.setEmpty(text),
    sheet: (cut: string) => table.sheet(cut),
  };
}

/** Of another time than now, when it was counts. */
function seen(ts: number): CellView | string {
  if (times.isLive()) return { text: ago(ts, live.now()), title: bothTimes(ts) };
  return { text: dateTime(ts).slice(5, 16), title: bothTimes(ts) };
}

/** A count that is a failure when it is not zero, or "not countable". */
function failing(row: Source, value: number): CellView {
  if (!row.countable) {
    const title = row.mixed
      ? 'Several nodes send from this address, and their reports do not identify the node: losses cannot be counted'
      : row.reports > 1
        ? 'Its sequence number does not advance, so losses cannot be counted'
        : 'Losses can be counted from the second report on';
    return { text: 'not countable', class: 'unknown', title };
  }
  return { text: exact(value), class: value > 0 ? 'bad' : 'zero' };
}

function mild(value: number): CellView {
  return { text: exact(value), class: value > 0 ? 'warn' : 'zero' };
}

function sumOf(drops: Drops): number {
  return Object.values(drops).reduce((sum, value) => sum + value, 0);
}

function reasons(drops: Drops): string {
  return Object.entries(drops)
    .map(([reason, value]) => `${reason.replaceAll('_', ' ')}: ${exact(value)}`)
    .join(', ');
}

/** A value of a source whose losses can be counted. */
function countable(value: (row: Source) => number): { value(row: Source): number | null } {
  return { value: (row) => (row.countable ? value(row) : null) };
}

/** Which sources are shown if there are more of them. */
export function shownOf(shown: number, total: number): string {
  return total > shown
    ? `${exact(shown)} of ${exact(total)}: those with the most losses and refused reports`
    : '';
}

export function sourceTable() {
  return new LiveTable<Source>({
    label: 'Sources of reports',
    empty: 'No source has sent a report yet.',
    columns: [
      {
        title: 'Source',
        class: 'mono',
        file: { value: (row) => row.source },
        cell: (row) => (row.name ? { text: row.name, title: row.source } : row.source),
      },
      { title: 'Node', numeric: true, cell: (row) => (row.node === null ? '–' : names.node(row.node)) },
      {
        title: 'hw',
        hint: 'Subsystem of the node',
        file: { value: (row) => row.hw_id },
        numeric: true,
        cell: (row) => String(row.hw_id ?? '–'),
      },
      { title: 'Version', hint: 'Telemetry Report version', numeric: true, cell: (row) => row.version },
      {
        title: 'Reports',
        numeric: true,
        file: { value: (row) => row.reports },
        cell: (row) => ({ text: count(row.reports), title: exact(row.reports) }),
      },
      {
        title: 'Lost',
        numeric: true,
        file: countable((row) => row.lost),
        cell: (row) => failing(row, row.lost),
      },
      {
        title: 'Unconfirmed',
        hint: 'Missing in addition, without enough reports received to confirm the loss',
        numeric: true,
        file: countable((row) => row.unconfirmed),
        cell: (row) => (row.countable ? mild(row.unconfirmed) : ''),
      },
      {
        title: 'Loss',
        numeric: true,
        file: { ...countable((row) => row.lost / Math.max(1, row.reports + row.lost)), unit: 'fraction' },
        cell: (row) => (row.countable ? percent(row.lost / Math.max(1, row.reports + row.lost)) : ''),
      },
      ...(['reordered', 'duplicated', 'restarts'] as const).map((name) => ({
        title: name.charAt(0).toUpperCase() + name.slice(1),
        numeric: true,
        file: countable((row) => row[name]),
        cell: (row: Source) => (row.countable ? mild(row[name]) : ''),
      })),
      {
        title: 'Refused',
        hint: 'Received but malformed or unsupported',
        numeric: true,
        file: { value: (row) => sumOf(row.refused) },
        cell: (row) => ({ ...mild(sumOf(row.refused)), title: reasons(row.refused) }),
      },
      {
        title: 'Seen',
        numeric: true,
        file: { value: (row) => row.last_seen, time: true },
        cell: (row) => ({ text: ago(row.last_seen, live.now()), title: bothTimes(row.last_seen) }),
      },
    ],
  });
}

export function inputTable() {
  return new LiveTable<Input>({
    label: 'Inputs',
    empty: 'No inputs.',
    columns: [
      { title: 'Input', class: 'mono', cell: (row) => row.listen },
      {
        title: 'Receive path',
        cell: (row) => {
          const { tone, text, hint } = inputState(row);
          return { text, title: hint, class: tone === 'ok' ? '' : tone };
        },
      },
      { title: 'Queues', numeric: true, cell: (row) => (row.queues > 0 ? exact(row.queues) : '') },
      {
        title: 'Datagrams',
        numeric: true,
        file: { value: (row) => row.datagrams },
        cell: (row) => ({ text: count(row.datagrams), title: exact(row.datagrams) }),
      },
      {
        title: 'Handled in kernel',
        hint: 'Without a significant change, so aggregated in the kernel: no copy, no wake-up',
        numeric: true,
        file: {
          value: (row) => (row.kind.startsWith('kernel') ? row.handled_in_kernel : null),
          unit: 'datagrams',
        },
        cell: (row) => ({
          text: row.kind.startsWith('kernel')
            ? percent(row.handled_in_kernel / Math.max(1, row.datagrams))
            : '',
          title: exact(row.handled_in_kernel),
        }),
      },
      {
        title: 'Dropped',
        hint: 'Dropped under overload, before they were read',
        numeric: true,
        file: { value: (row) => sumOf(row.drops) },
        cell: (row) => ({ ...mild(sumOf(row.drops)), title: dropText(row.drops) }),
      },
      {
        title: 'By socket',
        file: { value: (row) => (row.interface === null ? null : sumOf(row.passed)) },
        hint: 'Frames that the XDP program passed to the network stack: fragments, too long, unusual. A socket receives them.',
        numeric: true,
        cell: (row) => ({
          text: row.interface === null ? '' : exact(sumOf(row.passed)),
          class: sumOf(row.passed) > 0 ? '' : 'zero',
          title: reasons(row.passed),
        }),
      },
      {
        title: 'Reason',
        class: 'grow why',
        cell: (row) => {
          const { why } = inputState(row);
          return { text: why, title: why };
        },
      },
    ],
  });
}

export function fillPanel() {
  return new LiveTable<TableFill>({
    label: 'Table usage',
    empty: '',
    also: [{ name: 'Capacity', value: (row) => row.capacity }],
    columns: [
      { title: 'Table', cell: (row) => row.name },
      {
        title: 'Used',
        class: 'grow',
        numeric: true,
        file: { value: (row) => row.used },
        cell: (row) => ({
          text: `${count(row.used)} of ${count(row.capacity)}`,
          bar: row.capacity === 0 ? 0 : row.used / row.capacity,
          class: row.used >= row.capacity * 0.9 ? 'full' : '',
          title: `${exact(row.used)} of ${exact(row.capacity)}`,
        }),
      },
      {
        title: 'Evicted',
        numeric: true,
        file: { value: (row) => row.evicted },
        cell: (row) => mild(row.evicted),
      },
      {
        title: 'Refused',
        numeric: true,
        file: { value: (row) => row.refused },
        cell: (row) => mild(row.refused),
      },
    ],
  });
}

/** Files of the store that cannot be used, or that something else removed or replaced. */
export function problemTable() {
  return new LiveTable<FileProblem>({
    label: 'Files of the store',
    empty: 'All files of the store can be used.',
    columns: [
      { title: 'File', class: 'mono', cell: (row) => row.file },
      { title: 'Problem', cell: (row) => ({ text: row.kind, class: 'bad' }) },
      {
        title: 'Records',
        hint: 'Records that this program stored in the file and that are no longer in the store',
        numeric: true,
        file: { value: (row) => row.records },
        cell: (row) => count(row.records),
      },
      {
        title: 'Found',
        numeric: true,
        file: { value: (row) => row.found, time: true },
        cell: (row) => seen(row.found),
      },
      { title: 'Reason, and what to do', class: 'grow', cell: (row) => row.message },
    ],
  });
}

export function storePanel() {
  const store = h('dd');
  const commit = h('dd');
  const element = h('dl', { class: 'facts' }, h('dt', {}, 'Store'), store, h('dt', {}, 'Commit'), commit);
  return {
    element,
    update(status: Status) {
      setText(store, storeText(status));
      setText(commit, status.store ? ago(status.store.last_commit, live.now()) : '–');
      store.classList.toggle('bad', status.store !== null && status.store.state.toLowerCase() !== 'ok');
    },
  };
}

function storeText({ store }: Status): string {
  if (!store) return 'off: nothing is stored on disk';
  const shed = store.shed > 0 ? `, ${exact(store.shed)} shed` : '';
  const message = store.message ? `: ${store.message}` : '';
  return `${store.state.toLowerCase()}${message}, ${count(store.written)} records, ${bytes(store.bytes)}, ${count(store.queue)} queued${shed}`;
}
