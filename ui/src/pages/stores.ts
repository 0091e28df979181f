import { ApiError, get, postExact } from '../api/client';
import type { Memory, Snapshot, Store } from '../api/dta';
import { poll, type Poll } from '../api/poll';
import { apiOption, hands } from '../hands';
import { code, empty, h, panel, setText } from '../lib/dom';
import {
  bothTimes,
  bytes,
  count,
  dateTime,
  exact,
  NONE,
  percent,
  plural,
  reasonOf,
  span,
} from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { LiveTable } from '../lib/table';
import { hopwise } from '../model/copies';
import { expectedText, shapeText } from '../model/stores';
import { link, type Page, type Route } from '../router';
import { goTo } from '../times';
import { queryPanel } from './stores-query';

/** Collector memory: counters, stores with their occupancy, queries by key. */
export function storesPage(route: Route): Page {
  return new StoresPage(route.argument);
}

/** Shown when the program has no collector memory. */
export function noMemory(): HTMLElement {
  return empty(
    'No collector memory',
    'Switches that report by DTA write to collector memory through a translator. Add ',
    code('[collector.memory]'),
    ' to the configuration of this program, and ',
    code('[translator]'),
    ' to that of another hopwise, or to this one.',
  );
}

class StoresPage implements Page {
  readonly element: HTMLElement;
  private readonly facts = h('dl', { class: 'facts' });
  private readonly query = queryPanel();
  private readonly links: LiveTable<Memory['links'][number]>;
  private readonly stores: LiveTable<Store>;
  private readonly snapshots: LiveTable<Snapshot>;
  private readonly note = h('span', { class: 'muted', role: 'status' });
  private readonly polls: Poll[];
  private rows: Store[] = [];

  constructor(private name: string) {
    this.stores = storeTable(
      (store) => store.name === this.name,
      (store) => goTo(link('stores', store.name)),
    );
    this.links = linkTable();
    this.snapshots = snapshotTable();
    const click = (): void => void this.take();
    const button = h('button', { type: 'button', on: { click } }, 'Take snapshots now');
    const page = h(
      'div',
      { class: 'page stores' },
      panel('Memory', { class: 'memory' }, this.facts),
      panel(
        'Translators',
        { class: 'translators', hands: tableHands('Translators', 'dta', this.links) },
        this.links.element,
      ),
      this.query.element,
      panel(
        'Stores',
        {
          class: 'wide',
          hands: tableHands('Stores', 'dta/stores', this.stores, () =>
            hopwise('stores', { api: apiOption() }),
          ),
        },
        this.stores.element,
      ),
      panel(
        'Snapshots',
        { class: 'wide', aside: button, hands: tableHands('Snapshots', 'dta/snapshots', this.snapshots) },
        this.snapshots.element,
        this.note,
      ),
    );
    this.element = h('div', {}, page);
    const failed = (error: unknown): void => {
      if (error instanceof ApiError && error.status === 404) this.element.replaceChildren(noMemory());
    };
    this.polls = [
      poll<Memory>({
        intervalMs: 1000,
        request: (signal) => get('dta', {}, signal),
        show: (memory) => {
          if (!page.isConnected) this.element.replaceChildren(page);
          showFacts(this.facts, memory);
          this.links.update(memory.links);
        },
        failed,
      }),
      poll<{ stores: Store[] }>({
        intervalMs: 2000,
        request: (signal) => get('dta/stores', {}, signal),
        show: ({ stores }) => this.show(stores),
      }),
      poll<{ snapshots: Snapshot[] }>({
        intervalMs: 10_000,
        request: (signal) => get('dta/snapshots', {}, signal),
        show: ({ snapshots }) => this.snapshots.update(snapshots),
      }),
    ];
  }

  route(route: Route): void {
    this.name = route.argument;
    this.show(this.rows);
  }

  stop(): void {
    for (const one of this.polls) one.stop();
    this.query.stop();
  }

  private show(stores: Store[]): void {
    this.rows = stores;
    this.name ||= stores[0]?.name ?? '';
    this.stores.update(stores);
    this.query.about(stores.find((store) => store.name === this.name) ?? null);
  }

  private async take(): Promise<void> {
    setText(this.note, 'writing …');
    try {
      const { snapshots } = await postExact<{ snapshots: Snapshot[] }>('dta/snapshots', {});
      setText(this.note, `${plural(snapshots.length, 'snapshot')} written`);
      this.polls[2]?.now();
    } catch (error) {
      setText(this.note, reasonOf(error));
    }
  }
}

/** A table whose rows one request has. */
function tableHands(
  title: string,
  path: string,
  table: { sheet(): Sheet | null },
  command?: () => string[],
): HTMLElement {
  return hands({
    title,
    asked: () => [{ path }],
    sheet: () => table.sheet(),
    ...(command ? { command } : {}),
  });
}

function storeTable(selected: (store: Store) => boolean, select: (store: Store) => void): LiveTable<Store> {
  return new LiveTable<Store>({
    label: 'Stores',
    empty: 'No stores: add [[collector.memory.stores]] to the configuration.',
    select,
    selected,
    columns: [
      { title: 'Store', cell: (store) => store.name },
      { title: 'Id', numeric: true, cell: (store) => exact(store.id) },
      { title: 'Kind', cell: (store) => store.kind },
      {
        title: 'Layout',
        class: 'grow',
        cell: (store) => ({ text: shapeText(store), title: store.fields ?? '' }),
      },
      {
        title: 'Memory',
        numeric: true,
        file: { value: (store) => store.bytes, unit: 'bytes' },
        cell: (store) => bytes(store.bytes),
      },
      {
        title: 'Pages',
        hint: 'huge: reserved 2 MiB pages; transparent: huge pages requested with madvise',
        cell: (store) => store.pages,
      },
      {
        title: 'Filled',
        hint: 'Share of slots in use, from a sample',
        numeric: true,
        file: { value: (store) => store.occupied, unit: 'fraction' },
        cell: (store) =>
          store.occupied === null ? NONE : { text: percent(store.occupied), bar: store.occupied },
      },
      {
        title: 'Expected to answer',
        hint: 'Share of all keys reported so far that a query finds, by number of copies',
        cell: (store) => expectedText(store),
      },
    ],
  });
}

function linkTable(): LiveTable<Memory['links'][number]> {
  return new LiveTable({
    label: 'Translators',
    empty: 'No translator is connected.',
    columns: [
      {
        title: 'From',
        class: 'grow',
        cell: (row) => ({ text: row.from, title: `${row.instance}, link ${row.link}` }),
      },
      { title: 'State', cell: (row) => ({ text: row.up ? 'up' : 'down', class: row.up ? 'good' : 'bad' }) },
      {
        title: 'Since',
        numeric: true,
        file: { value: (row) => row.since_s, unit: 's' },
        cell: (row) => span(row.since_s),
      },
      { title: 'Queue pairs', cell: (row) => `${row.unreliable} / ${row.reliable}` },
    ],
  });
}

function snapshotTable(): LiveTable<Snapshot> {
  return new LiveTable<Snapshot>({
    label: 'Snapshots',
    empty: 'None yet.',
    columns: [
      { title: 'Store', cell: (row) => row.store },
      {
        title: 'Taken',
        file: { value: (row) => row.ts, time: true },
        cell: (row) => ({ text: dateTime(row.ts), title: bothTimes(row.ts) }),
      },
      {
        title: 'Size',
        numeric: true,
        file: { value: (row) => row.bytes, unit: 'bytes' },
        cell: (row) => bytes(row.bytes),
      },
      { title: 'File', class: 'grow', cell: (row) => row.file },
    ],
  });
}

function showFacts(box: HTMLElement, memory: Memory): void {
  const dropped = Object.values(memory.dropped).reduce((sum, one) => sum + one, 0);
  const refused = Object.values(memory.refused).reduce((sum, one) => sum + one, 0);
  const facts: [string, string, string?][] = [
    ['RoCEv2 to', memory.listen],
    ['exchange', memory.exchange],
    ['memory', bytes(memory.bytes), memory.directory],
    ['packets', count(memory.packets), exact(memory.packets)],
    ['messages executed', count(memory.messages), exact(memory.messages)],
    ['bytes written', bytes(memory.written_bytes)],
    ['fetch-adds', count(memory.fetch_adds), exact(memory.fetch_adds)],
    ['refused', count(refused), reasons(memory.refused)],
    ['not executed', count(dropped), reasons(memory.dropped)],
    ['missing', count(memory.missing), 'Packets of unreliable queue pairs that were lost'],
    ['dropped by the kernel', count(memory.kernel_drops)],
    [
      'counters',
      memory.balanced ? 'balanced' : 'unbalanced',
      'packets = executed + duplicates + refused + dropped',
    ],
    ['entries reported as events', count(memory.events.entries)],
  ];
  const rows = facts.flatMap(([name, value, title]) => [
    h('dt', {}, name),
    h('dd', title ? { title } : {}, value),
  ]);
  box.replaceChildren(...rows);
}

function reasons(drops: Record<string, number>): string {
  return Object.entries(drops)
    .map(([reason, times]) => `${reason} ${exact(times)}`)
    .join(', ');
}
