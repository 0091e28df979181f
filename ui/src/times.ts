import { live } from './live';
import { limits, nanos, readRange, USUAL, writeRange, type Range } from './model/range';
import { link, parseRoute } from './router';
import { session } from './session';
import { browser, type AddressBar } from './settings';

/** The parameters of an address that say which time is shown, and how often it is refreshed. */
export const PARAMETERS: readonly string[] = ['last', 'from', 'to', 'refresh'];

/** Seconds between two questions about a range that ends now; 0: there is only one. */
export const REFRESHES: readonly { seconds: number; text: string }[] = [
  { seconds: 0, text: 'off' },
  { seconds: 5, text: '5s' },
  { seconds: 10, text: '10s' },
  { seconds: 60, text: '1m' },
];
const REFRESH = 10;
/** A poll that is not repeated: a day. */
const NEVER_MS = 86_400_000;

/** What is needed of a link. */
export interface Anchor {
  dataset: Record<string, string | undefined>;
  getAttribute(name: 'href'): string | null;
  setAttribute(name: 'href', value: string): void;
}

/** The time that all pages show. It is in the address of each page, and links carry it to the next one. */
export class Times {
  /** Whether the page shows a time that can be chosen. */
  shown = false;
  private changed: () => void = () => undefined;

  constructor(
    private readonly bar: AddressBar,
    private readonly clock: () => number,
    private readonly hasLive: () => boolean = () => true,
  ) {}

  get range(): Range {
    return readRange(parseRoute(this.bar.hash()).query);
  }

  /** Whether pages show what arrives, as it arrives. In a console nothing does. */
  isLive(): boolean {
    return this.hasLive() && this.isUsual();
  }

  /** Whether nobody has chosen another range. */
  isUsual(): boolean {
    return JSON.stringify(this.range) === JSON.stringify(USUAL);
  }

  /** Whether the range has ended: nothing in it changes any more. */
  isPast(): boolean {
    return !('last' in this.range);
  }

  /** The server's time, ms. */
  now(): number {
    return this.clock() / 1e6;
  }

  /** Its limits, ms. */
  limits(): { from: number; to: number } {
    return limits(this.range, this.now());
  }

  /** How long it is, ns. */
  length(): number {
    const { from, to } = this.limits();
    return (to - from) * 1e6;
  }

  /** Its limits as parameters of the API. */
  span(): { from: string; to: string } {
    const { from, to } = this.limits();
    return { from: nanos(from), to: nanos(to) };
  }

  /** Parameters of the API; none for what is live. */
  query(): Record<string, string> {
    return this.isLive() ? {} : this.span();
  }

  /** Seconds between two questions, as chosen. */
  refresh(): number {
    const text = parseRoute(this.bar.hash()).query.get('refresh');
    return REFRESHES.find((one) => one.text === text)?.seconds ?? REFRESH;
  }

  /** How often to ask: what is live as often as the page likes. */
  intervalMs(liveMs: number): number {
    if (this.isLive()) return liveMs;
    const seconds = this.refresh();
    return this.isPast() || seconds === 0 ? NEVER_MS : seconds * 1000;
  }

  set(range: Range): void {
    this.write(writeRange(range), ['last', 'from', 'to']);
  }

  setRefresh(seconds: number): void {
    const text = REFRESHES.find((one) => one.seconds === seconds)?.text ?? '';
    this.write(seconds === REFRESH ? {} : { refresh: text }, ['refresh']);
  }

  /** What is shown stays as it is. */
  pause(): void {
    const { from, to } = this.limits();
    this.set({ from: Math.floor(from / 1000) * 1000, to: Math.ceil(to / 1000) * 1000 });
  }

  /** Calls `changed` after each change that is not one of the address bar. */
  onChange(changed: () => void): void {
    this.changed = changed;
  }

  /** An address of this program with the present range, unless it has one. */
  carry(address: string): string {
    if (!address.startsWith('#/')) return address;
    const route = parseRoute(address);
    const { query } = parseRoute(this.bar.hash());
    if (PARAMETERS.some((name) => route.query.has(name))) return address;
    const mine = PARAMETERS.flatMap((name) => (query.has(name) ? [[name, query.get(name) ?? '']] : []));
    if (mine.length === 0) return address;
    return link(route.page, route.argument, {
      ...Object.fromEntries(route.query),
      ...Object.fromEntries(mine),
    });
  }

  /** Completes the address of a link. One that stays on the page is completed anew each time, from the address that it was made with. */
  complete(anchor: Anchor): void {
    const shown = anchor.getAttribute('href') ?? '';
    const { dataset } = anchor;
    const own = (shown === dataset['carried'] ? dataset['href'] : undefined) ?? shown;
    const carried = this.carry(own);
    if (carried === shown) return;
    [dataset['href'], dataset['carried']] = [own, carried];
    anchor.setAttribute('href', carried);
  }

  private write(values: Record<string, string>, names: readonly string[]): void {
    const { page, argument, query } = parseRoute(this.bar.hash());
    for (const name of names) query.delete(name);
    for (const [name, value] of Object.entries(values)) query.set(name, value);
    const address = link(page === '' ? 'overview' : page, argument, Object.fromEntries(query));
    if (address === this.bar.hash()) return;
    this.bar.write(address, true);
    this.changed();
  }
}

export const times = new Times(
  browser,
  () => live.now(),
  () => !session.console,
);

/** Goes to an address of this program, in the same time. */
export function goTo(address: string): void {
  location.hash = times.carry(address);
}

/** Links keep the time: their addresses are completed when they are about to be used. */
export function carryTimes(): void {
  const complete = (event: globalThis.Event): void => {
    const anchor =
      event.target instanceof Element ? event.target.closest<HTMLAnchorElement>('a[href^="#/"]') : null;
    if (anchor) times.complete(anchor);
  };
  for (const name of ['pointerdown', 'click', 'auxclick', 'contextmenu'])
    document.addEventListener(name, complete, { capture: true });
}
