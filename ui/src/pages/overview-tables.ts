import type { Drops, Flow, Input, Source, Status, TableFill } from '../api/types';
import { h, setText } from '../lib/dom';
import { ago, bytes, count, dateTime, duration, exact, flowName, pathText, percent } from '../lib/format';
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
        cell: (row) => ({ text: flowName(row.flow), href: link('flow', row.id), title: row.text }),
      },
      { title: 'Path', class: 'mono wide-only', cell: (row) => pathText(row.path) },
      {
        title: 'Latency',
        numeric: true,
        cell: (row) => ({ text: duration(row.flow_latency), bar: (row.flow_latency ?? 0) / most }),
      },
      {
        title: '',
        cell: (row) => {
          const mark = basisMark(row.basis);
          return mark ? { text: mark.mark, title: mark.hint, class: 'mark' } : '';
        },
      },
      { title: 'Reports', class: 'wide-only', numeric: true, cell: (row) => count(row.reports) },
      { title: 'Seen', class: 'wide-only', numeric: true, cell: (row) => seen(row.last_seen) },
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
  };
}

/** Of another time than now, when it was counts. */
function seen(ts: number): CellView | string {
  if (times.isLive()) return ago(ts, live.now());
  return { text: dateTime(ts).slice(5, 16), title: dateTime(ts) };
}

/** A count that is a failure when it is not zero; "not countable" for a source whose sequence number never advances. */
function failing(row: Source, value: number): CellView {
  if (!row.countable) {
    const title = 'Its sequence number never advances, so losses cannot be counted';
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

export function sourceTable() {
  return new LiveTable<Source>({
    label: 'Sources of reports',
    empty: 'No source has sent a report yet.',
    columns: [
      {
        title: 'Source',
        class: 'mono',
        cell: (row) => (row.name ? { text: row.name, title: row.source } : row.source),
      },
      { title: 'Node', numeric: true, cell: (row) => (row.node === null ? '–' : names.node(row.node)) },
      { title: 'hw', hint: 'Subsystem of the node', numeric: true, cell: (row) => String(row.hw_id ?? '–') },
      { title: 'Version', hint: 'Telemetry Report version', numeric: true, cell: (row) => row.version },
      {
        title: 'Reports',
        numeric: true,
        cell: (row) => ({ text: count(row.reports), title: exact(row.reports) }),
      },
      { title: 'Lost', numeric: true, cell: (row) => failing(row, row.lost) },
      {
        title: 'Unconfirmed',
        hint: 'Missing in addition, without enough reports received to confirm the loss',
        numeric: true,
        cell: (row) => (row.countable ? mild(row.unconfirmed) : ''),
      },
      {
        title: 'Loss',
        numeric: true,
        cell: (row) => (row.countable ? percent(row.lost / Math.max(1, row.reports + row.lost)) : ''),
      },
      { title: 'Reordered', numeric: true, cell: (row) => (row.countable ? mild(row.reordered) : '') },
      { title: 'Duplicated', numeric: true, cell: (row) => (row.countable ? mild(row.duplicated) : '') },
      { title: 'Restarts', numeric: true, cell: (row) => (row.countable ? mild(row.restarts) : '') },
      {
        title: 'Refused',
        hint: 'Received but malformed or unsupported',
        numeric: true,
        cell: (row) => ({ ...mild(sumOf(row.refused)), title: reasons(row.refused) }),
      },
      { title: 'Seen', numeric: true, cell: (row) => ago(row.last_seen, live.now()) },
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
        cell: (row) => ({ text: count(row.datagrams), title: exact(row.datagrams) }),
      },
      {
        title: 'Handled in kernel',
        hint: 'Without a significant change, so aggregated in the kernel: no copy, no wake-up',
        numeric: true,
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
        cell: (row) => ({ ...mild(sumOf(row.drops)), title: dropText(row.drops) }),
      },
      {
        title: 'By socket',
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
    columns: [
      { title: 'Table', cell: (row) => row.name },
      {
        title: 'Used',
        class: 'grow',
        numeric: true,
        cell: (row) => ({
          text: `${count(row.used)} of ${count(row.capacity)}`,
          bar: row.capacity === 0 ? 0 : row.used / row.capacity,
          class: row.used >= row.capacity * 0.9 ? 'full' : '',
          title: `${exact(row.used)} of ${exact(row.capacity)}`,
        }),
      },
      { title: 'Evicted', numeric: true, cell: (row) => mild(row.evicted) },
      { title: 'Refused', numeric: true, cell: (row) => mild(row.refused) },
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
