import { get } from '../api/client';
import type { Export, Exports } from '../api/generated';
import { poll, type Poll } from '../api/poll';
import { apiOption, hands } from '../hands';
import { code, empty, h, panel } from '../lib/dom';
import { ago, bothTimes, bytes, count, exact } from '../lib/format';
import { LiveTable } from '../lib/table';
import { hopwise } from '../model/copies';
import { health } from '../model/exports';
import type { Page } from '../router';

/** Records on their way to other systems: what waits, what was delivered, what fails and why. */
export function exportsPage(): Page {
  return new ExportsPage();
}

function nothing(): HTMLElement {
  return empty(
    'No exports',
    'An export sends stored records to Kafka, ClickHouse, InfluxDB, Redis, OpenSearch and others, at least once. Add ',
    code('[exports.NAME]'),
    ' to the configuration.',
  );
}

class ExportsPage implements Page {
  readonly element: HTMLElement;
  private readonly table = exportTable();
  private readonly poll: Poll;

  constructor() {
    const page = h(
      'div',
      { class: 'page' },
      panel('Exports', { class: 'wide', hands: this.copies() }, this.table.element),
    );
    this.element = h('div', {}, page);
    this.poll = poll<Exports>({
      intervalMs: 1000,
      request: (signal) => get('exports', {}, signal),
      show: ({ exports }) => {
        if (exports.length === 0) return this.element.replaceChildren(nothing());
        if (!page.isConnected) this.element.replaceChildren(page);
        this.table.update(exports);
      },
    });
  }

  private copies(): HTMLElement {
    return hands({
      title: 'Exports',
      asked: () => [{ path: 'exports' }],
      command: () => hopwise('export status', { api: apiOption() }),
      sheet: () => this.table.sheet(),
    });
  }

  stop(): void {
    this.poll.stop();
  }
}

function exportTable(): LiveTable<Export> {
  const number = (value: number): { text: string; title: string } => ({
    text: count(value),
    title: exact(value),
  });
  return new LiveTable<Export>({
    label: 'Exports',
    empty: 'None.',
    columns: [
      { title: 'Export', cell: (row) => row.export },
      {
        title: 'Stream',
        cell: (row) => (row.partition === null ? row.stream : `${row.stream} ${row.partition}`),
      },
      { title: 'To', cell: (row) => `${row.kind} ${row.server}` },
      {
        title: 'Delivered',
        file: { value: (row) => row.delivered },
        hint: 'Records that the server has stored, since the start of hopwise',
        numeric: true,
        cell: (row) => number(row.delivered),
      },
      {
        title: 'Waiting',
        file: { value: (row) => row.waiting },
        hint: 'Stored records that are still pending',
        numeric: true,
        cell: (row) => number(row.waiting),
      },
      {
        title: 'Rejected',
        file: { value: (row) => row.rejected },
        hint: 'Permanently rejected records, saved to a file with the server’s error',
        numeric: true,
        cell: (row) => ({ ...number(row.rejected), ...(row.rejected > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Expired',
        file: { value: (row) => row.expired },
        hint: 'Records that the store deleted before they were sent',
        numeric: true,
        cell: (row) => ({ ...number(row.expired), ...(row.expired > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Shed',
        file: { value: (row) => row.shed },
        hint: 'Hops dropped because the system accepted them more slowly than they arrived',
        numeric: true,
        cell: (row) => ({ ...number(row.shed), ...(row.shed > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Memory',
        file: { value: (row) => row.memory, unit: 'bytes' },
        hint: 'Batches, requests and hops in memory',
        numeric: true,
        cell: (row) => ({ text: bytes(row.memory), title: `of ${bytes(row.memory_limit)}` }),
      },
      {
        title: 'Last success',
        file: { value: (row) => row.last_success, time: true },
        numeric: true,
        cell: (row) => ({
          text: ago(row.last_success, Date.now() * 1e6),
          title: bothTimes(row.last_success),
        }),
      },
      { title: 'State', class: 'grow', cell: (row) => health(row) },
    ],
  });
}
