import { ApiError, get } from '../api/client';
import type { Entry, List, Tail } from '../api/dta';
import { poll, type Poll } from '../api/poll';
import { apiOption, hands } from '../hands';
import { empty, h, panel, setText } from '../lib/dom';
import { count, exact, NONE, plural } from '../lib/format';
import { LiveTable } from '../lib/table';
import { hopwise } from '../model/copies';
import { fieldsText } from '../model/stores';
import { link, type Page, type Route } from '../router';
import { goTo, times } from '../times';
import { noMemory } from './stores';

/** Entries shown, newest first. */
const SHOWN = 200;

/** Lists that switches append to, and the entries of one of them. */
export function listsPage(route: Route): Page {
  return new ListsPage(route.argument);
}

class ListsPage implements Page {
  readonly element: HTMLElement;
  private readonly box = h('div', { class: 'list-entries' });
  private readonly table: LiveTable<List>;
  private readonly lists: Poll;
  private rows: List[] = [];
  private followed: { id: string; stop(): void } | null = null;

  constructor(private selected: string) {
    this.table = listTable(
      (list) => String(list.list) === this.selected,
      (list) => goTo(link('lists', String(list.list))),
    );
    const page = h(
      'div',
      { class: 'page lists' },
      panel(
        'Lists',
        {
          class: 'list-side',
          hands: hands({
            title: 'Lists',
            now: () => true,
            asked: () => [{ path: 'dta/lists', params: { limit: 1000 } }],
            sheet: () => this.table.sheet(),
          }),
        },
        this.table.element,
      ),
      this.box,
    );
    const note = h(
      'p',
      { class: 'table-note', role: 'status' },
      'Lists are collector memory, and their entries have no timestamps: this page always shows the current state.',
    );
    this.element = h('div', {}, times.isLive() ? null : note, page);
    this.box.append(
      panel(
        'Entries',
        {},
        empty('No list selected', 'Select a list to see its entries as they are written.'),
      ),
    );
    this.lists = poll<{ lists: List[] }>({
      intervalMs: 2000,
      request: (signal) => get('dta/lists', { limit: 1000 }, signal),
      show: ({ lists }) => {
        if (!page.isConnected) this.element.replaceChildren(...(times.isLive() ? [] : [note]), page);
        this.rows = lists;
        // Without a selection, show the first list that has entries.
        this.selected ||= String(lists.find((list) => list.newest !== null)?.list ?? lists[0]?.list ?? '');
        this.table.update(lists);
        this.follow();
      },
      failed: (error) => {
        if (error instanceof ApiError && error.status === 404) this.element.replaceChildren(noMemory());
      },
    });
  }

  route(route: Route): void {
    this.selected = route.argument;
    this.table.update(this.rows);
    this.follow();
  }

  stop(): void {
    this.lists.stop();
    this.followed?.stop();
  }

  private follow(): void {
    if (this.selected === '' || this.followed?.id === this.selected) return;
    this.followed?.stop();
    this.followed = { id: this.selected, ...follow(this.selected, this.box) };
  }
}

function listTable(selected: (list: List) => boolean, select: (list: List) => void): LiveTable<List> {
  return new LiveTable<List>({
    label: 'Lists',
    empty: 'No lists: add a store of kind "append" to the configuration.',
    select,
    selected,
    columns: [
      { title: 'List', numeric: true, cell: (list) => exact(list.list) },
      { title: 'Store', class: 'grow', cell: (list) => list.store },
      {
        title: 'Batches',
        numeric: true,
        hint: 'Sequence number of the newest batch',
        cell: (list) => count(list.newest),
      },
      { title: 'Events', cell: (list) => (list.events ? 'yes' : NONE) },
    ],
  });
}

/** Shows the entries of a list in `box`, and appends new ones. */
function follow(id: string, box: HTMLElement): { stop(): void } {
  const state = h('span', { class: 'muted', role: 'status' });
  const table = new LiveTable<Entry>({
    label: 'Entries',
    empty: 'No entries yet.',
    columns: [
      { title: 'Batch', numeric: true, cell: (entry) => exact(entry.sequence) },
      { title: 'Entry', numeric: true, cell: (entry) => exact(entry.index) },
      {
        title: 'Value',
        class: 'grow',
        cell: (entry) => ({ text: entry.fields ? fieldsText(entry.fields) : entry.data, title: entry.data }),
      },
    ],
  });
  const menu = hands({
    title: `List ${id}`,
    now: () => true,
    asked: () => [{ path: `dta/lists/${encodeURIComponent(id)}`, params: { limit: SHOWN } }],
    command: () => hopwise('tail', { limit: SHOWN, api: apiOption() }, id),
    sheet: () => table.sheet(entries.length < SHOWN ? '' : `The newest ${SHOWN} entries.`),
  });
  box.replaceChildren(panel(`List ${id}`, { class: 'entries', aside: state, hands: menu }, table.element));
  let entries: Entry[] = [];
  let from: number | null = null;
  let [overwritten, missing] = [0, 0];
  return poll<Tail>({
    intervalMs: 1000,
    request: (signal) => get(`dta/lists/${encodeURIComponent(id)}`, { from, limit: SHOWN }, signal),
    show(tail) {
      from = tail.next;
      overwritten += tail.overwritten;
      missing += tail.missing;
      entries = [...[...tail.entries].reverse(), ...entries].slice(0, SHOWN);
      table.update(entries);
      setText(state, stateText(tail.store, overwritten, missing));
    },
    failed(error) {
      if (error instanceof ApiError) setText(state, error.message);
    },
  });
}

function stateText(store: string, overwritten: number, missing: number): string {
  const lost =
    overwritten + missing === 0
      ? 'complete'
      : [
          overwritten > 0
            ? `${plural(overwritten, 'batch', 'batches')} overwritten before they were read`
            : '',
          missing > 0 ? `${plural(missing, 'batch', 'batches')} incomplete` : '',
        ]
          .filter((text) => text !== '')
          .join(', ');
  return `${store}: newest first, ${lost}`;
}
