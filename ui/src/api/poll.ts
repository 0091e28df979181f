import { ApiError, Unreachable } from './client';

export const LONGEST_WAIT_MS = 15_000;

/** Wait before the next try: the interval, doubled for every failure in a row, up to 15 s. */
export function backoff(intervalMs: number, failures: number): number {
  return Math.min(intervalMs * 2 ** Math.min(failures, 10), Math.max(LONGEST_WAIT_MS, intervalMs));
}

export interface Poll {
  stop(): void;
  /** Requests again now, for example because a filter changed. A response still in flight is discarded. */
  now(): void;
}

export interface PollOptions<T> {
  /** Between two requests; a function is asked after each. */
  intervalMs: number | (() => number);
  request(signal: AbortSignal): Promise<T>;
  show(answer: T): void;
  failed?(error: unknown, waitMs: number): void;
}

/** Polls: one request at a time, slower after failures, paused while the tab is hidden. */
export function poll<T>(options: PollOptions<T>): Poll {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let current: AbortController | undefined;
  let failures = 0;
  let stopped = false;

  async function run(): Promise<void> {
    clearTimeout(timer);
    current?.abort();
    const mine = new AbortController();
    current = mine;
    let error: unknown;
    try {
      const answer = await options.request(mine.signal);
      if (mine.signal.aborted) return;
      failures = 0;
      options.show(answer);
    } catch (caught) {
      if (mine.signal.aborted) return;
      failures += 1;
      error = caught;
      if (!isExpected(caught)) console.error(caught);
    }
    current = undefined;
    const { intervalMs } = options;
    const wait = backoff(typeof intervalMs === 'number' ? intervalMs : intervalMs(), failures);
    if (error !== undefined) options.failed?.(error, wait);
    if (!stopped && !document.hidden) timer = setTimeout(run, wait);
  }

  function visibility(): void {
    clearTimeout(timer);
    if (!document.hidden && current === undefined) void run();
  }

  document.addEventListener('visibilitychange', visibility);
  void run();
  return {
    stop() {
      stopped = true;
      clearTimeout(timer);
      current?.abort();
      document.removeEventListener('visibilitychange', visibility);
    },
    now(): void {
      if (!stopped) void run();
    },
  };
}

/** Failures that the page shows as text; anything else is a bug and goes to the console. */
function isExpected(error: unknown): boolean {
  return error instanceof ApiError || error instanceof Unreachable;
}
