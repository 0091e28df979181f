import { address, token, type Params } from './client';
import type { TelemetryEvent } from './types';

const RETRY_MS = 3_000;

export interface StreamHandlers {
  event(event: TelemetryEvent): void;
  /** The number of events that the server skipped because this client was too slow. */
  shed(count: number): void;
  state(state: 'connecting' | 'live' | 'lost'): void;
}

/** Live events. Reconnects automatically; `stop` ends it. */
export function stream(params: Params, handlers: StreamHandlers): { stop(): void } {
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;

  function open(): void {
    handlers.state('connecting');
    source = new EventSource(address('events/stream', { ...params, token: token() }));
    source.onopen = () => handlers.state('live');
    source.onmessage = (message: MessageEvent<string>) => {
      const event = parse(message.data);
      if (event) handlers.event(event);
    };
    source.addEventListener('shed', (message) => handlers.shed(shedCount(String(message.data))));
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

function parse(data: string): TelemetryEvent | null {
  try {
    return JSON.parse(data) as TelemetryEvent;
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
