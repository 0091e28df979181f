import { address, token, type Params } from './client';
import type { ManagerChange } from './manager';
import type { TelemetryEvent } from './types';

const RETRY_MS = 3_000;

export type StreamState = 'connecting' | 'live' | 'lost';

interface Connection {
  /** The number of messages that the server skipped because this client was too slow. */
  shed(count: number): void;
  state(state: StreamState): void;
}

export interface StreamHandlers extends Connection {
  event(event: TelemetryEvent): void;
}

export interface ChangeHandlers extends Connection {
  change(change: ManagerChange): void;
}

export interface Stream {
  stop(): void;
}

/** Live events. Reconnects automatically; `stop` ends it. */
export function stream(params: Params, handlers: StreamHandlers): Stream {
  return connect('events/stream', params, handlers, ['message'], (data) =>
    handlers.event(data as TelemetryEvent),
  );
}

const CHANGES = ['device', 'intent', 'removed', 'domain', 'history'];

/** What changes at the manager, first the state of everything. Reconnects automatically; `stop` ends it. */
export function changes(handlers: ChangeHandlers): Stream {
  return connect('domain/stream', {}, handlers, CHANGES, (data) => handlers.change(data as ManagerChange));
}

function connect(
  path: string,
  params: Params,
  handlers: Connection,
  kinds: readonly string[],
  take: (data: unknown) => void,
): Stream {
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;

  function open(): void {
    handlers.state('connecting');
    source = new EventSource(address(path, { ...params, token: token() }));
    source.onopen = () => handlers.state('live');
    for (const kind of kinds) {
      source.addEventListener(kind, (message: MessageEvent<string>) => {
        const data = parse(message.data);
        if (data !== null) take(data);
      });
    }
    source.addEventListener('shed', (message: MessageEvent<string>) =>
      handlers.shed(shedCount(String(message.data))),
    );
    source.onerror = () => {
      handlers.state('lost');
      // The browser reopens a broken connection, but closes a refused one (401, 503) permanently.
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY_MS);
    };
  }

  open();
  return {
    stop() {
      clearTimeout(retry);
      source?.close();
    },
  };
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data) as unknown;
  } catch {
    return null;
  }
}

/** The server sends the bare number or an object that holds it. */
export function shedCount(data: string): number {
  try {
    const parsed = JSON.parse(data) as unknown;
    if (typeof parsed === 'number') return parsed;
    const values = Object.values(parsed as Record<string, unknown>);
    return values.find((value): value is number => typeof value === 'number') ?? 0;
  } catch {
    return 0;
  }
}
