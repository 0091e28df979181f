import { ApiError, get } from './api/client';
import type { Devices, Domain, Intents, ManagerChange } from './api/manager';
import { poll } from './api/poll';
import { changes, type Stream } from './api/stream';
import { take, type Known } from './model/manager';

/** Between two requests: as a fallback, and while the stream works. */
const POLL_MS = 1_000;
const RARE_MS = 10_000;
/** A burst of changes causes one drawing, and one request. */
const DRAW_MS = 50;
const READ_MS = 250;

export interface Options {
  show(known: Known): void;
  /** There is no manager in this program. */
  none(): void;
  /** An entry of the history, or several that were missed. */
  noted?(subject: string | null): void;
}

export interface Following {
  known: Known;
  /** Reads everything again now. */
  now(): void;
  stop(): void;
}

/** Follows the manager by its stream of changes; without the stream, by a request per second. */
export function followManager(options: Options): Following {
  const known: Known = { intents: [], devices: [], domain: null };
  let stream: Stream | undefined;
  let isLive = false;
  const draw = later(DRAW_MS, () => options.show(known));
  const read = later(READ_MS, () => lists.now());

  function changed(change: ManagerChange): void {
    if (change.kind === 'history') options.noted?.(change.change.subject);
    if (take(known, change)) read.soon();
    draw.soon();
  }

  function follow(): void {
    stream ??= changes({
      change: changed,
      shed: () => {
        read.soon();
        options.noted?.(null);
      },
      state: (state) => {
        isLive = state === 'live';
        if (!isLive) read.soon();
      },
    });
  }

  const lists = poll<[Intents, Devices, Domain]>({
    intervalMs: () => (isLive ? RARE_MS : POLL_MS),
    request: (signal) =>
      Promise.all([
        get<Intents>('intents', {}, signal),
        get<Devices>('devices', {}, signal),
        get<Domain>('domain', {}, signal),
      ]),
    show: ([{ intents }, { devices }, domain]) => {
      Object.assign(known, { intents, devices, domain });
      follow();
      options.show(known);
    },
    failed: (error) => {
      if (error instanceof ApiError && error.status === 404) options.none();
    },
  });
  return {
    known,
    now: () => lists.now(),
    stop() {
      stream?.stop();
      lists.stop();
      draw.stop();
      read.stop();
    },
  };
}

/** Runs once, some time after the first of several calls. */
function later(ms: number, run: () => void): { soon(): void; stop(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return {
    soon() {
      timer ??= setTimeout(() => {
        timer = undefined;
        run();
      }, ms);
    },
    stop: () => clearTimeout(timer),
  };
}
