import { ApiError, get } from '../api/client';
import type { Entry, List, Tail } from '../api/dta';
import { poll, type Poll } from '../api/poll';
import { empty, h, panel, setText } from '../lib/dom';
import { count, exact, NONE, plural } from '../lib/format';
import { LiveTable } from '../lib/table';
import { fieldsText } from '../model/stores';
import { link, type Page, type Route } from '../router';
import { noMemory } from './stores';

/** Entries shown, newest first. */
const SHOWN = 200;

/** Lists that switches append to, and what comes into one of them. */
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

  constructor(private picked: string) {
    this.table = listTable(
      (list) => String(list.list) === this.picked,
      (list) => (location.hash = link('lists', String(list.list))),
    );
    const page = h(
      'div',
      { class: 'page lists' },
      panel('Lists', { class: 'list-side' }, this.table.element),
      this.box,
    );
    this.element = h('div', {}, page);
    this.box.append(
      panel('Entries', {}, empty('No list picked', 'Pick one: its entries come in as they are written.')),
    );
    this.lists = poll<{ lists: List[] }>({
      intervalMs: 2000,
      ask: (signal) => get('dta/lists', { limit: 1000 }, signal),
      show: ({ lists }) => {
        if (!page.isConnected) this.element.replaceChildren(page);
        this.rows = lists;
        // Who comes without a wish sees the first that has something.
        this.picked ||= String(lists.find((list) => list.newest !== null)?.list ?? lists[0]?.list ?? '');
        this.table.update(lists);
        this.follow();
      },
      failed: (error) => {
        if (error instanceof ApiError && error.status === 404) this.element.replaceChildren(noMemory());
      },
    });
  }

  route(route: Route): void {
    this.picked = route.argument;
    this.table.update(this.rows);
    this.follow();
  }

  stop(): void {
    this.lists.stop();
    this.followed?.stop();
  }

  private follow(): void {
    if (this.picked === '' || this.followed?.id === this.picked) return;
    this.followed?.stop();
    this.followed = { id: this.picked, ...follow(this.picked, this.box) };
  }
}

function listTable(picked: (list: List) => boolean, pick: (list: List) => void): LiveTable<List> {
  return new LiveTable<List>({
    label: 'Lists',
    empty: 'No lists: add a store of kind "append" to the configuration.',
    pick,
    picked,
    columns: [
      { title: 'List', numeric: true, cell: (list) => exact(list.list) },
      { title: 'Store', class: 'grow', cell: (list) => list.store },
      {
        title: 'Batches',
        numeric: true,
        hint: 'The number of the newest',
        cell: (list) => count(list.newest),
      },
      { title: 'Events', cell: (list) => (list.events ? 'yes' : NONE) },
    ],
  });
}

/** Shows a list's entries in `box`, and adds what comes. */
function follow(id: string, box: HTMLElement): { stop(): void } {
  const state = h('span', { class: 'muted', role: 'status' });
  const table = new LiveTable<Entry>({
    label: 'Entries',
    empty: 'Nothing was written to this list yet.',
    columns: [
      { title: 'Batch', numeric: true, cell: (entry) => exact(entry.sequence) },
      { title: 'Entry', numeric: true, cell: (entry) => exact(entry.index) },
      {
        title: 'What it says',
        class: 'grow',
        cell: (entry) => ({ text: entry.fields ? fieldsText(entry.fields) : entry.data, title: entry.data }),
      },
    ],
  });
  box.replaceChildren(panel(`List ${id}`, { class: 'entries', aside: state }, table.element));
  let entries: Entry[] = [];
  let from: number | null = null;
  let [lapped, missing] = [0, 0];
  return poll<Tail>({
    intervalMs: 1000,
    ask: (signal) => get(`dta/lists/${encodeURIComponent(id)}`, { from, limit: SHOWN }, signal),
    show(tail) {
      from = tail.next;
      lapped += tail.lapped;
      missing += tail.missing;
      entries = [...[...tail.entries].reverse(), ...entries].slice(0, SHOWN);
      table.update(entries);
      setText(state, stateText(tail.store, lapped, missing));
    },
    failed(error) {
      if (error instanceof ApiError) setText(state, error.message);
    },
  });
}

function stateText(store: string, lapped: number, missing: number): string {
  const lost =
    lapped + missing === 0
      ? 'nothing missed'
      : [
          lapped > 0 ? `${plural(lapped, 'batch', 'batches')} overwritten before they were read` : '',
          missing > 0 ? `${plural(missing, 'batch', 'batches')} never came whole` : '',
        ]
          .filter((text) => text !== '')
          .join(', ');
  return `${store}: the newest first, ${lost}`;
}
