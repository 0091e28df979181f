import type { Cell } from '../api/types';
import { h, setText, show } from './dom';
import { NONE } from './format';
import type { Sheet, SheetColumn } from './sheet';

/** The content of a cell. Plain data, so that a refresh changes only cells that differ. */
export interface CellView {
  text: string;
  href?: string;
  class?: string;
  title?: string;
  /** The colour of the text. */
  colour?: string;
  /** A bar behind the text, fraction of the cell's width. */
  bar?: number;
}

export interface Column<T> {
  title: string;
  hint?: string;
  numeric?: boolean;
  class?: string;
  /** Its name in the order of the table, if rows can be sorted by it. */
  order?: string;
  cell(row: T): CellView | string;
  /** In a file: its value in place of the text, with its name, and its unit or that it is a time. */
  file?: Omit<FileColumn<T>, 'name'> & { name?: string };
}

interface FileColumn<T> extends SheetColumn {
  value(row: T): Cell;
}

/** The order of a table: the name of a column, and `-` before it for the other direction. */
export interface Order {
  get(): string;
  set(order: string): void;
}

export interface TableOptions<T> {
  label: string;
  columns: Column<T>[];
  empty: string;
  /** Columns that only a file has. */
  also?: FileColumn<T>[];
  /** Makes rows clickable and reachable by keyboard. */
  select?(row: T): void;
  selected?(row: T): boolean;
  /** Makes headings of columns with an order buttons. Who makes the rows sorts them. */
  order?: Order;
}

/** A table that is refreshed in place: focus, selection and scroll position survive. */
export class LiveTable<T> {
  readonly element: HTMLElement;
  private readonly body: HTMLTableSectionElement;
  private readonly note: HTMLElement;
  private readonly heads: HTMLTableCellElement[];
  private rows: T[] = [];

  constructor(private readonly options: TableOptions<T>) {
    this.body = h('tbody');
    this.note = h('p', { class: 'table-note' }, options.empty);
    // No data yet, which differs from data without rows.
    this.note.hidden = true;
    this.heads = options.columns.map((column) =>
      h(
        'th',
        { scope: 'col', class: cellClass(column), ...(column.hint ? { title: column.hint } : {}) },
        options.order && column.order !== undefined
          ? sortButton(column.title, column.order, options.order)
          : column.title,
      ),
    );
    const table = h(
      'table',
      { aria: { label: options.label } },
      h('thead', {}, h('tr', {}, ...this.heads)),
      this.body,
    );
    this.element = scrollBox('table-box', options.label, table, this.note);
  }

  update(rows: readonly T[]): void {
    this.rows = [...rows];
    this.showOrder();
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    rows.forEach((row, index) => this.patch(this.rowAt(index), row));
    show(this.note, rows.length === 0);
  }

  /** Changes the text that is shown when there are no rows. */
  setEmpty(text: string): void {
    setText(this.note, text);
  }

  /** The rows as they are now, for a file; null without rows. */
  sheet(cut = ''): Sheet | null {
    if (this.rows.length === 0) return null;
    const { also = [] } = this.options;
    const columns = this.options.columns
      .map((column) => fileColumn(column))
      .filter(({ name }) => name !== '');
    return {
      columns: [...columns, ...also],
      rows: this.rows.map((row) => [...columns, ...also].map(({ value }) => value(row))),
      texts: this.rows.map((row) => [
        ...columns.map(({ text }) => text(row)),
        ...also.map(({ value }) => String(value(row) ?? '')),
      ]),
      cut,
    };
  }

  private showOrder(): void {
    const order = this.options.order?.get() ?? '';
    this.options.columns.forEach((column, i) => {
      if (this.options.order === undefined || column.order === undefined) return;
      const direction =
        order === column.order ? 'descending' : order === `-${column.order}` ? 'ascending' : 'none';
      this.heads[i]?.setAttribute('aria-sort', direction);
    });
  }

  private rowAt(index: number): HTMLTableRowElement {
    const existing = this.body.rows[index];
    if (existing) return existing;
    const row = this.body.insertRow();
    for (const column of this.options.columns) row.append(h('td', { class: cellClass(column) }));
    if (this.options.select) this.makeSelectable(row, index);
    return row;
  }

  private makeSelectable(row: HTMLTableRowElement, index: number): void {
    const select = (): void => {
      const value = this.rows[index];
      if (value !== undefined) this.options.select?.(value);
    };
    row.tabIndex = 0;
    row.classList.add('pickable');
    row.addEventListener('click', select);
    row.addEventListener('keydown', (event) => {
      // A link in the row has its own Enter.
      if (event.target !== row) return;
      if (event.key === 'Enter' || event.key === ' ') select();
      else if (!this.focusRow(event.key, index)) return;
      event.preventDefault();
    });
  }

  /** Arrows, Home and End go to other rows. Returns whether the key is one of them. */
  private focusRow(key: string, index: number): boolean {
    const last = this.body.rows.length - 1;
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: last }[key];
    if (to === undefined) return false;
    this.body.rows[Math.min(last, Math.max(0, to))]?.focus();
    return true;
  }

  private patch(element: HTMLTableRowElement, row: T): void {
    this.options.columns.forEach((column, i) => {
      const cell = element.cells[i];
      const view = column.cell(row);
      if (cell) patchCell(cell, typeof view === 'string' ? { text: view } : view, cellClass(column));
    });
    if (this.options.selected) {
      const selected = this.options.selected(row);
      element.classList.toggle('selected', selected);
      element.setAttribute('aria-current', String(selected));
    }
  }
}

/** A column as a file has it, with the text of the page. */
function fileColumn<T>(column: Column<T>): FileColumn<T> & { text(row: T): string } {
  const { file, title } = column;
  const text = (row: T): string => {
    const view = column.cell(row);
    return (typeof view === 'string' ? view : view.text).replaceAll('\n', ', ');
  };
  const shown = (row: T): Cell => (text(row) === NONE ? null : text(row));
  return { value: shown, ...file, name: file?.name ?? title, text };
}

/** Sorts by its column: greatest first, and pressed again the other way. */
function sortButton(title: string, column: string, order: Order): HTMLElement {
  const sort = (): void => order.set(order.get() === column ? `-${column}` : column);
  return h('button', { type: 'button', class: 'sort', on: { click: sort } }, title);
}

/** Boxes that may be too small for what is in them: then the keyboard has to reach them, to scroll. */
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.classList.contains('scroll-box') ? target : target.parentElement;
    if (!(box instanceof HTMLElement)) continue;
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute('tabindex');
  }
});

/** A box that scrolls when it has to. */
export function scrollBox(name: string, label: string, ...content: HTMLElement[]): HTMLElement {
  const box = h('div', { class: `${name} scroll-box`, role: 'group', aria: { label } }, ...content);
  for (const element of [box, ...content]) boxes.observe(element);
  return box;
}

function cellClass(column: { numeric?: boolean; class?: string }): string {
  return `${column.numeric ? 'num' : ''} ${column.class ?? ''}`.trim();
}

function patchCell(cell: HTMLTableCellElement, view: CellView, base: string): void {
  const name = `${base} ${view.class ?? ''} ${view.bar === undefined ? '' : 'has-bar'}`.trim();
  if (cell.className !== name) cell.className = name;
  if (cell.title !== (view.title ?? '')) cell.title = view.title ?? '';
  if (cell.style.color !== (view.colour ?? '')) cell.style.color = view.colour ?? '';
  if (view.bar !== undefined) cell.style.setProperty('--bar', `${(Math.min(1, view.bar) * 100).toFixed(1)}%`);
  if (view.href === undefined) return setText(cell, view.text);
  const existing = cell.firstElementChild;
  const link = existing instanceof HTMLAnchorElement ? existing : h('a');
  if (link.getAttribute('href') !== view.href) link.setAttribute('href', view.href);
  setText(link, view.text);
  if (link !== existing) cell.replaceChildren(link);
}
