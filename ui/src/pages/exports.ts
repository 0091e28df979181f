import { get } from '../api/client';
import type { Export, Exports } from '../api/generated';
import { poll, type Poll } from '../api/poll';
import { code, empty, h, panel } from '../lib/dom';
import { ago, bytes, count, exact } from '../lib/format';
import { LiveTable } from '../lib/table';
import { health } from '../model/exports';
import type { Page } from '../router';

/** Records on their way to other systems: what waits, what was delivered, what fails and why. */
export function exportsPage(): Page {
  return new ExportsPage();
}

function nothing(): HTMLElement {
  return empty(
    'No exports',
    'An export sends what is stored to Kafka, ClickHouse, InfluxDB, Redis, OpenSearch and others, at least once. Add ',
    code('[exports.NAME]'),
    ' to the configuration.',
  );
}

class ExportsPage implements Page {
  readonly element: HTMLElement;
  private readonly table = exportTable();
  private readonly poll: Poll;

  constructor() {
    const page = h('div', { class: 'page' }, panel('Exports', { class: 'wide' }, this.table.element));
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
        hint: 'Records that the server has stored, since the start of hopwise',
        numeric: true,
        cell: (row) => number(row.delivered),
      },
      {
        title: 'Waiting',
        hint: 'Stored records that are not settled yet',
        numeric: true,
        cell: (row) => number(row.waiting),
      },
      {
        title: 'Rejected',
        hint: 'Records that the server will never take; they are in a file with its words',
        numeric: true,
        cell: (row) => ({ ...number(row.rejected), ...(row.rejected > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Expired',
        hint: 'Records that the store deleted before they were sent',
        numeric: true,
        cell: (row) => ({ ...number(row.expired), ...(row.expired > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Shed',
        hint: 'Hops that found no space, because the system took less than came',
        numeric: true,
        cell: (row) => ({ ...number(row.shed), ...(row.shed > 0 ? { class: 'bad' } : {}) }),
      },
      {
        title: 'Memory',
        hint: 'Batches, requests and hops in memory',
        numeric: true,
        cell: (row) => ({ text: bytes(row.memory), title: `of ${bytes(row.memory_limit)}` }),
      },
      {
        title: 'Last success',
        numeric: true,
        cell: (row) => ago(row.last_success, Date.now() * 1e6),
      },
      { title: 'State', class: 'grow', cell: (row) => health(row) },
    ],
  });
}
