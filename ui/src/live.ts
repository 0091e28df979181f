import { ApiError, get, postExact } from './api/client';
import { poll, type Poll } from './api/poll';
import type { QueryResult, RatesThen, Status } from './api/types';
import { reasonOf } from './lib/format';
import { Ring } from './lib/ring';
import { totals } from './model/budget';
import { LossClock, pastRates, sinceStart, WINDOW_SECONDS } from './model/rates';

export interface Trouble {
  message: string;
  since: number;
  waitMs: number;
  unauthorised: boolean;
}

type Listener = () => void;

/** State shared by all pages: the latest status, its short history, and connection trouble. */
class Live {
  status: Status | null = null;
  trouble: Trouble | null = null;
  /** Reports/s and events/s, one point per second. */
  readonly rates = new Ring(2, WINDOW_SECONDS);
  readonly dropped = new LossClock();
  readonly lost = new LossClock();
  private skewMs = 0;
  private readonly listeners = new Set<Listener>();
  private filled = false;
  private asked: Poll | undefined;

  start(): void {
    this.asked = poll<Status>({
      intervalMs: 1000,
      request: (signal) => get<Status>('status', {}, signal),
      show: (status) => this.take(status),
      failed: (error, waitMs) => this.fail(error, waitMs),
    });
  }

  /** For a program without a live state. */
  stop(): void {
    this.asked?.stop();
    this.status = null;
    this.trouble = null;
    this.announce();
  }

  /** The server's clock, ns: relative times must not depend on this machine's clock. */
  now(): number {
    return (Date.now() + this.skewMs) * 1e6;
  }

  /** False when the store is off: then there is no history to query. */
  hasStore(): boolean {
    return this.status?.store !== null;
  }

  /** Calls the listener at once and after each response or failure. Returns a function that removes it. */
  watch(listener: Listener): () => void {
    this.listeners.add(listener);
    listener();
    return () => this.listeners.delete(listener);
  }

  private take(status: Status): void {
    this.skewMs = status.now / 1e6 - Date.now();
    this.status = status;
    this.trouble = null;
    const seconds = Math.round(status.now / 1e9);
    this.rates.push(seconds, [status.rates.reports, status.rates.events]);
    const { dropped, lost } = totals(status.loss_budget);
    this.dropped.add(seconds, dropped);
    this.lost.add(seconds, lost);
    if (!this.filled) {
      this.filled = true;
      void this.fill(seconds, seconds - Math.round(status.uptime_s), status.store !== null);
    }
    this.announce();
  }

  private fail(error: unknown, waitMs: number): void {
    const message = reasonOf(error);
    const unauthorised = error instanceof ApiError && error.status === 401;
    this.trouble = { message, since: this.trouble?.since ?? Date.now(), waitMs, unauthorised };
    this.announce();
  }

  /** Rates of the 15 minutes before the page was opened: from the program since its start, from the store before that. */
  private async fill(seconds: number, started: number, hasStore: boolean): Promise<void> {
    const from = `${seconds - WINDOW_SECONDS}000000000`;
    const stored = (sql: string): Promise<Map<number, number>> | Map<number, number> =>
      hasStore ? counts(sql, from) : new Map<number, number>();
    const [kept, reports, events] = await Promise.all([
      history(),
      stored(reportsSql(from)),
      stored(eventsSql(from)),
    ]);
    // The last seconds may not be committed yet.
    this.rates.prepend(sinceStart(kept, pastRates(reports, events, started, seconds - 3)));
    this.announce();
  }

  private announce(): void {
    for (const listener of this.listeners) listener();
  }
}

function reportsSql(from: string): string {
  const where = `metric = 'flow_latency' AND interval = 60 AND ts >= ${from}`;
  return `SELECT ts / 1000000000, sum(count) FROM rollups WHERE ${where} GROUP BY 1`;
}

function eventsSql(from: string): string {
  return `SELECT ts / 1000000000, count(*) FROM events WHERE ts >= ${from} GROUP BY 1`;
}

/** The program's rate history; empty on failure. */
async function history(): Promise<RatesThen[]> {
  try {
    return (await get<{ rates: RatesThen[] }>('rates')).rates;
  } catch {
    return [];
  }
}

/** Second → number, from a query with these two columns; empty on failure or without a store. */
async function counts(sql: string, from: string): Promise<Map<number, number>> {
  try {
    const result = await postExact<QueryResult>('query', {
      sql,
      from: Number(from),
      limit: 2 * WINDOW_SECONDS,
    });
    return new Map(result.rows.map(([time, value]) => [Number(time), Number(value)]));
  } catch {
    return new Map();
  }
}

export const live = new Live();
