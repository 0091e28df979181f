import { link, parseRoute, type Route } from './router';

/** The address bar, as far as it is needed here. */
export interface AddressBar {
  hash(): string;
  /** With `push`, the back button returns to the address before. */
  write(hash: string, push: boolean): void;
}

export const browser: AddressBar = {
  hash: () => location.hash,
  write: (hash, push) => history[push ? 'pushState' : 'replaceState'](null, '', hash),
};

/** Browsers refuse addresses that change with every key. */
const TYPING_MS = 300;

/**
 * What a person has set on a page: the parameters of its address. A value that is the default is not written, and
 * parameters of others stay. So a copied address shows the same, and back and forward work.
 */
export class Settings<T extends Record<string, string>> {
  private values: T;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(
    private route: Route,
    private readonly defaults: T,
    private readonly bar: AddressBar = browser,
  ) {
    this.values = this.read(route);
  }

  get<K extends keyof T>(name: K): T[K] {
    return this.values[name];
  }

  /** Changes values, at once in the address: the back button returns to those before, or skips them without `push`. */
  set(changes: Partial<T>, push = true): void {
    if (this.change(changes)) this.flush(push);
  }

  /** Changes what is being typed: the address follows when the typing pauses, and the back button skips it. */
  type(changes: Partial<T>): void {
    if (!this.change(changes)) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(false), TYPING_MS);
  }

  /** Sets what the address names after the page, such as a flow. Without `push` the back button skips it. */
  go(argument: string, push = true): void {
    if (argument === this.route.argument) return;
    this.route = { ...this.route, argument };
    this.flush(push);
  }

  /** Takes the values of another address of the same page. Returns whether one differs. */
  adopt(route: Route): boolean {
    clearTimeout(this.timer);
    const before = this.values;
    this.route = route;
    this.values = this.read(route);
    return Object.keys(this.defaults).some((name) => before[name] !== this.values[name]);
  }

  /** The page is left: nothing is written any more. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private read(route: Route): T {
    const found = Object.entries(this.defaults).map(([name, value]) => [
      name,
      route.query.get(name) ?? value,
    ]);
    return Object.fromEntries(found) as T;
  }

  private change(changes: Partial<T>): boolean {
    const changed = { ...this.values, ...changes };
    const differs = Object.keys(changes).some((name) => changed[name] !== this.values[name]);
    this.values = changed;
    return differs;
  }

  private flush(push: boolean): void {
    clearTimeout(this.timer);
    // A field that was left may still say what was typed.
    if (this.stopped) return;
    const { page, argument, query } = this.route;
    for (const [name, value] of Object.entries(this.values)) {
      // Deleted first, so that the same settings always give the same address.
      query.delete(name);
      if (value !== this.defaults[name]) query.set(name, value);
    }
    // Someone may have left the page while the last key waited.
    const now = parseRoute(this.bar.hash());
    if (now.page !== page) return;
    const address = link(page === '' ? 'overview' : page, argument, Object.fromEntries(query));
    if (address !== this.bar.hash()) this.bar.write(address, push);
  }
}
