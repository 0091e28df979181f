import { ApiError, postExact, Unreachable } from '../api/client';
import { notes } from '../api/notes';
import type { Cell, QueryResult } from '../api/types';
import { LineChart } from '../charts/line';
import { legendEntry } from '../charts/stacked';
import { hands, saveCsv } from '../hands';
import { empty, h, panel, setText, show } from '../lib/dom';
import { count, dateTime, exact, reasonOf, utc } from '../lib/format';
import { scrollBox } from '../lib/table';
import type { Sheet } from '../lib/sheet';
import { live } from '../live';
import { queryCommand } from '../model/copies';
import { plotColumns, timeColumn } from '../model/result';
import type { Page, Route } from '../router';
import { session } from '../session';
import { Settings } from '../settings';
import { EXAMPLES, SCHEMA } from './sql-help';

const KEPT_QUERY = 'hopwise-sql';
const SHOWN_ROWS = 1000;
const LIMITS = ['100', '1000', '10000'];
const DEFAULTS = { sql: '', limit: '1000' };

/** A query, its result as a table, and as lines when the first column is a time. */
export function sqlPage(route: Route): Page {
  return new SqlPage(route);
}

class SqlPage implements Page {
  readonly element: HTMLElement;
  private readonly text = editor();
  private readonly limit = h('select', { id: 'limit' }, ...LIMITS.map(limitOption));
  private readonly csv = h('button', { type: 'button', disabled: true }, 'CSV');
  private readonly info = h('span', { class: 'muted', role: 'status' }, 'Ctrl-Enter runs the query');
  private readonly error = h('div', { class: 'query-error', role: 'alert' });
  private readonly output = h('div', { class: 'query-output' });
  private result: QueryResult | null = null;
  private chart: LineChart | null = null;
  private running: AbortController | null = null;

  private readonly settings: Settings<typeof DEFAULTS>;

  constructor(route: Route) {
    this.settings = new Settings(route, DEFAULTS);
    this.error.hidden = true;
    this.output.append(empty('No result yet', 'Write a query or take an example.'));
    this.text.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void this.execute();
    });
    this.csv.addEventListener('click', () => {
      saveCsv(this.sheet(), 'Result');
    });
    this.limit.addEventListener('change', () => this.settings.set({ limit: this.limit.value }));
    this.element = this.build();
    this.adopt();
  }

  route(route: Route): void {
    if (this.settings.adopt(route)) this.adopt();
  }

  stop(): void {
    this.settings.stop();
    this.running?.abort();
    this.chart?.destroy();
  }

  private build(): HTMLElement {
    const click = (): void => void this.execute();
    const run = h('button', { class: 'primary', type: 'button', title: 'Ctrl-Enter', on: { click } }, 'Run');
    const most = h('label', { for: 'limit' }, 'at most');
    const bar = h('div', { class: 'bar' }, run, most, this.limit, 'rows', this.csv, this.info);
    const examples = help((sql) => {
      this.text.value = sql;
      void this.execute();
    });
    return h(
      'div',
      { class: 'page sql' },
      panel('Query', { class: 'query' }, this.text, this.error, bar),
      panel('Examples and tables', { class: 'help' }, examples),
      panel('Result', { class: 'result', hands: this.copies() }, this.output),
    );
  }

  private copies(): HTMLElement {
    const sql = (): string => this.settings.get('sql');
    const limit = (): number => Number(this.limit.value);
    return hands({
      title: 'Result',
      asked: () => (sql() === '' ? [] : [{ path: 'query', body: { sql: sql(), limit: limit() } }]),
      sql: () => sql() || null,
      command: () => (sql() === '' || session.console ? null : queryCommand(sql(), limit())),
      sheet: () => this.sheet(),
    });
  }

  private sheet(): Sheet | null {
    const { result } = this;
    if (!result || result.rows.length === 0) return null;
    const cut = result.truncated ? [`The first ${result.rows.length} rows; there are more.`] : [];
    return {
      columns: result.columns.map((name) => (timeColumn(name) ? { name, time: true } : { name })),
      rows: result.rows,
      cut: [...cut, ...(result.notes ?? [])].join(' '),
    };
  }

  /** Shows the query of the address, and its result. */
  private adopt(): void {
    const limit = this.settings.get('limit');
    this.limit.value = LIMITS.includes(limit) ? limit : DEFAULTS.limit;
    const sql = this.settings.get('sql');
    if (sql === '') return;
    this.text.value = sql;
    void this.execute();
  }

  private async execute(): Promise<void> {
    this.running?.abort();
    const mine = (this.running = new AbortController());
    const sql = this.text.value.trim();
    if (sql === '') return;
    this.settings.set({ sql });
    sessionStorage.setItem(KEPT_QUERY, sql);
    setText(this.info, 'running …');
    try {
      const query = { sql, limit: Number(this.limit.value) };
      const answer = await postExact<QueryResult>('query', query, mine.signal);
      if (!mine.signal.aborted) this.showResult(answer);
    } catch (error) {
      if (!mine.signal.aborted) this.showError(error);
    }
  }

  private showResult(answer: QueryResult): void {
    this.result = answer;
    notes.set('query', answer.notes);
    this.csv.disabled = false;
    show(this.error, false);
    setText(this.info, resultInfo(answer));
    this.chart?.destroy();
    const plot = plotColumns(answer);
    this.chart = plot ? resultChart(plot) : null;
    const drawing = this.chart && plot ? [plotLegend(plot.names), this.chart.element] : [];
    this.output.replaceChildren(...drawing, resultTable(answer));
  }

  private showError(error: unknown): void {
    if (!(error instanceof ApiError || error instanceof Unreachable)) console.error(error);
    setText(this.info, '');
    setText(this.error, reasonOf(error));
    show(this.error, true);
    this.text.focus();
  }
}

function editor(): HTMLTextAreaElement {
  const text = h('textarea', {
    class: 'editor',
    data: { search: '' },
    rows: '7',
    spellcheck: 'false',
    placeholder: 'SELECT … FROM events WHERE …',
    aria: { label: 'SQL query' },
  });
  text.value = sessionStorage.getItem(KEPT_QUERY) ?? EXAMPLES[0]?.sql ?? '';
  return text;
}

function limitOption(value: string): HTMLOptionElement {
  return h('option', { value, selected: value === '1000' }, value);
}

function help(use: (sql: string) => void): HTMLElement {
  const examples = EXAMPLES.map(({ title, sql }) =>
    h('li', {}, h('button', { type: 'button', title: sql, on: { click: () => use(sql) } }, title)),
  );
  const tables = SCHEMA.map(({ table, hint, columns }) =>
    h(
      'details',
      {},
      h('summary', {}, h('code', {}, table), h('span', { class: 'muted' }, hint)),
      h('p', { class: 'mono' }, columns),
    ),
  );
  return h('div', {}, h('ul', { class: 'examples' }, ...examples), ...tables);
}

function resultInfo(result: QueryResult): string {
  const rows = `${exact(result.rows.length)} ${result.rows.length === 1 ? 'row' : 'rows'}`;
  const cut = result.truncated ? ', there are more: raise the limit or narrow the query' : '';
  const hidden =
    result.rows.length > SHOWN_ROWS ? `, the first ${count(SHOWN_ROWS)} shown, all in the CSV` : '';
  const notes = (result.notes ?? []).map((note) => `; ${note}`).join('');
  return `${rows} in ${result.elapsed_ms.toFixed(result.elapsed_ms < 10 ? 1 : 0)} ms${cut}${hidden}${notes}`;
}

function resultChart(plot: NonNullable<ReturnType<typeof plotColumns>>): LineChart {
  const series = plot.names.map((label, i) => ({ label, colour: `series-${(i % 8) + 1}` }));
  const chart = new LineChart(series, {
    label: `Result over time: ${plot.names.join(', ')}`,
    format: count,
    now: () => live.now(),
    height: 180,
    freeTime: true,
    freeRange: true,
  });
  chart.element.classList.add('result-chart');
  chart.update([plot.times, ...plot.columns]);
  return chart;
}

function plotLegend(names: readonly string[]): HTMLElement {
  return h('div', { class: 'legend' }, ...names.map(legendEntry));
}

function resultTable(result: QueryResult): HTMLElement {
  if (result.rows.length === 0)
    return empty('No rows', 'The query returned no rows. Try a wider time range.');
  const time = result.columns.map(timeColumn);
  const numeric = result.columns.map(
    (_, i) => !time[i] && result.rows.every((row) => isNumeric(row[i] ?? null)),
  );
  const heads = result.columns.map((name, i) =>
    h('th', { scope: 'col', class: numeric[i] ? 'num' : '' }, name),
  );
  const rows = result.rows
    .slice(0, SHOWN_ROWS)
    .map((row) =>
      h('tr', {}, ...row.map((cell, i) => resultCell(cell, time[i] ?? false, numeric[i] ?? false))),
    );
  const table = h(
    'table',
    { aria: { label: 'Query result' } },
    h('thead', {}, h('tr', {}, ...heads)),
    h('tbody', {}, ...rows),
  );
  return scrollBox('table-box scroll', 'Query result', table);
}

function isNumeric(cell: Cell): boolean {
  return cell === null || typeof cell === 'number' || (typeof cell === 'string' && /^-?\d{16,}$/.test(cell));
}

function resultCell(cell: Cell, time: boolean, numeric: boolean): HTMLElement {
  if (cell === null) return h('td', { class: `null ${numeric ? 'num' : ''}` }, 'null');
  const instant = time && Number(cell) > 1e17;
  if (instant)
    return h('td', { class: 'mono', title: `${cell} ns, ${utc(Number(cell))}` }, dateTime(Number(cell)));
  return h('td', { class: numeric ? 'num' : '' }, String(cell));
}
