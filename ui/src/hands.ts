import { token } from './api/client';
import { notes } from './api/notes';
import { copyText } from './lib/clipboard';
import { saveBlob } from './lib/csv';
import { menuButton, type MenuGroup, type MenuItem } from './lib/menu';
import { chartPng, hasDrawing, tablePng, type Caption } from './lib/picture';
import { fileName, sheetCsv, type Sheet } from './lib/sheet';
import { curlText, isQuery, lineOf, withApi, type Asked, type SqlSpan } from './model/copies';
import type { Fleet } from './model/fleet-sql';
import { rangeText, utcText, writeRange, zoneText } from './model/range';
import { link, parseRoute } from './router';
import { session } from './session';
import { times } from './times';

/** A chart or a table that can be copied as a command and saved as a file. What is not there has no item in the menu. */
export interface Subject {
  /** In the names of files and above pictures. */
  title: string | (() => string);
  /** The requests to the API whose answers are shown. */
  asked?: () => Asked[];
  /** A statement of the SQL page that gives the same rows. */
  sql?: () => string | null;
  /** The same for a console, whose SQL is ClickHouse's. */
  fleetSql?: (fleet: Fleet) => string | null;
  /** The words of a command that gives the same. */
  command?: () => string[] | null;
  /** What is shown, for a CSV file; null: nothing yet. */
  sheet?: () => Sheet | null;
  /** Whether it is of now, whatever time the page shows. */
  now?: () => boolean;
  /** Whose drawings a picture has; without it those of the panel, or else the rows of the sheet. */
  drawing?: () => HTMLElement;
}

/** A menu for the head of a panel: `panel('Title', { hands: hands({ … }) }, …)`. */
export function hands(subject: Subject): HTMLElement {
  const title = (): string => (typeof subject.title === 'string' ? subject.title : subject.title());
  const label = typeof subject.title === 'string' ? subject.title : 'this';
  const element = menuButton('⋯', `Copy or save: ${label}`, () => groups(subject, title(), element));
  element.classList.add('hands');
  return element;
}

/** `--api` of a command: nothing where it is the default. */
export function apiOption(): string | null {
  const url = ownUrl();
  return url === 'http://127.0.0.1:8080' ? null : url;
}

/** The address of the program that serves this page. */
function ownUrl(): string {
  return new URL('.', document.baseURI).href.replace(/\/$/, '');
}

/** A time of an answer, ns, with all its digits. */
export function digits(ns: number): string {
  return BigInt(Math.round(ns)).toString();
}

/** The time of an answer, for SQL. */
export function sqlSpan({ from, to }: { from: number; to: number }): SqlSpan {
  return { from: digits(from), to: digits(to) };
}

function groups(subject: Subject, title: string, element: HTMLElement): MenuGroup[] {
  const asked = subject.asked?.() ?? [];
  const sql = (session.console ? subject.fleetSql?.(session.fleet) : subject.sql?.()) ?? null;
  const words = subject.command?.() ?? null;
  // A console runs the SQL of ClickHouse.
  const command = isQuery(words)
    ? session.console
      ? null
      : lineOf(withApi(words, ownUrl()))
    : lineOf(words);
  const queried = session.console ? '' : ' and `hopwise query`';
  const copies = [
    asked.length === 0
      ? null
      : copy('curl', 'The API request for this data', curlText(asked, document.baseURI, token() !== '')),
    sql === null
      ? null
      : copy('SQL', `The statement for the SQL page${queried} that returns these rows`, sql),
    command === null ? null : copy('hopwise command', 'The command that prints this data', command),
    copy('link', 'The URL of this page with its current settings', location.href),
    times.shown && !times.isPast()
      ? copy('link to this time', 'The same page, fixed to the current time range', fixedLink())
      : null,
  ];
  const files = new Files(subject, title, element);
  const present = (item: MenuItem | null): item is MenuItem => item !== null;
  return [
    { title: 'Copy as', items: copies.filter(present) },
    { title: 'Save as', items: files.items().filter(present) },
  ];
}

function copy(text: string, hint: string, copied: string): MenuItem {
  return {
    text,
    hint,
    async run() {
      await copyText(copied);
      return `${text} copied`;
    },
  };
}

function save(text: string, hint: string, run: () => Promise<string | null>): MenuItem {
  return { text, hint, run };
}

/** The address with the present limits in place of “the last minutes”. */
function fixedLink(): string {
  const { from, to } = times.limits();
  const range = { from: Math.floor(from / 1000) * 1000, to: Math.ceil(to / 1000) * 1000 };
  const { page, argument, query } = parseRoute(location.hash);
  for (const name of ['last', 'refresh']) query.delete(name);
  const hash = link(page === '' ? 'overview' : page, argument, {
    ...Object.fromEntries(query),
    ...writeRange(range),
  });
  return new URL(hash, document.baseURI).href;
}

const NOTHING = 'nothing to save yet';

/** Offers a sheet as a CSV file. Returns why there is none. */
export function saveCsv(sheet: Sheet | null, title: string, times = limits()): string | null {
  if (sheet === null) return NOTHING;
  saveBlob(fileName(pageName(), title, times, 'csv'), new Blob([sheetCsv(sheet)], { type: 'text/csv' }));
  return null;
}

/** The files that a subject can be saved as. */
class Files {
  private readonly drawing: HTMLElement | null;
  private readonly isNow: boolean;

  constructor(
    private readonly subject: Subject,
    private readonly title: string,
    menu: HTMLElement,
  ) {
    const drawing = subject.drawing?.() ?? menu.closest<HTMLElement>('.panel');
    this.drawing = drawing !== null && hasDrawing(drawing) ? drawing : null;
    this.isNow = subject.now?.() ?? false;
  }

  items(): (MenuItem | null)[] {
    const { sheet } = this.subject;
    return [
      sheet
        ? save('CSV', 'The values, with times in UTC', () =>
            Promise.resolve(saveCsv(sheet(), this.title, this.times())),
          )
        : null,
      this.drawing || sheet
        ? save('PNG', 'A picture in light colours, with title, range and legend', () => this.png())
        : null,
    ];
  }

  private times(): number[] {
    return this.isNow ? [times.now()] : limits();
  }

  private async png(): Promise<string | null> {
    const sheet = this.subject.sheet?.() ?? null;
    const cut = sheet?.cut ?? '';
    const shown = this.times();
    const text = zoneText(Math.min(...shown), Math.max(...shown));
    const zone = this.drawing === null ? [] : [`Times on the axis: ${text}.`];
    const caption: Caption = {
      title: this.title,
      lines: [`${document.title} · ${timeText(this.isNow)}`],
      notes: [...(cut === '' ? [] : [cut]), ...zone, ...notes.all()],
    };
    if (this.drawing === null && sheet === null) return NOTHING;
    const blob = await (this.drawing === null && sheet
      ? tablePng(tableOf(sheet), caption)
      : chartPng(this.drawing ?? document.body, caption));
    saveBlob(fileName(pageName(), this.title, this.times(), 'png'), blob);
    return null;
  }
}

function tableOf({ columns, rows, texts }: Sheet): { heads: string[]; rows: string[][]; numeric: boolean[] } {
  return {
    heads: columns.map(({ name }) => name),
    rows: texts ?? rows.map((row) => row.map((value) => String(value ?? ''))),
    numeric: columns.map((_, i) => rows.every((row) => row[i] === null || typeof row[i] === 'number')),
  };
}

function pageName(): string {
  const { page } = parseRoute(location.hash);
  return page === '' ? 'overview' : page;
}

/** Pages without a time show now. */
function limits(): number[] {
  if (!times.shown) return [times.now()];
  const { from, to } = times.limits();
  return [from, to];
}

/** The time that a page shows, in the local zone and in UTC. */
export function timeText(isNow = false): string {
  const now = times.now();
  if (times.shown && !isNow) return `${rangeText(times.range, now)} (${utcText(times.limits())})`;
  return utcText({ from: now, to: now }).replace(/^.* to /, '');
}
