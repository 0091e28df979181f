import { ApiError, get, waitFor } from './api/client';
import type { SessionView } from './api/generated';
import { dictionary } from './lib/dictionary';
import type { Fleet } from './model/fleet-sql';

type Listener = () => void;

async function fleet(): Promise<Fleet> {
  const { console } = await get<{ console?: Partial<Fleet> }>('config');
  return { prefix: console?.prefix ?? '', pairs: console?.pairs ?? [] };
}

const RETRY_MS = 3_000;
/** ClickHouse is asked up to three times for an answer of a console, each with a limit of its own, which says what to do. */
const CONSOLE_MS = 120_000;

/** What the token of this page may do. */
class Session {
  /** Whether the program is a console: it answers from ClickHouse, and nothing is live. */
  console = false;
  /** In a console: addresses of the pages of collectors, by their names. */
  collectors = dictionary<string>({});
  /** Of a console: what its SQL needs to know. */
  fleet: Fleet = { prefix: '', pairs: [] };
  private role: SessionView['role'] = 'operate';
  private readonly listeners = new Set<Listener>();

  /** Asks until there is an answer; until then, nothing is disabled. */
  async load(): Promise<void> {
    try {
      const view = await get<SessionView>('session');
      this.role = view.role;
      if (view.console) {
        waitFor(CONSOLE_MS);
        this.fleet = await fleet();
      }
      this.console = view.console;
      this.collectors = dictionary(view.collectors ?? {});
      for (const listener of this.listeners) listener();
    } catch (error) {
      // A program without roles.
      if (error instanceof ApiError && error.status === 404) return;
      setTimeout(() => void this.load(), RETRY_MS);
    }
  }

  mayOperate(): boolean {
    return this.role === 'operate';
  }

  /** Why something is disabled; empty if nothing is. */
  reason(): string {
    return this.mayOperate()
      ? ''
      : 'This token may only read. To change something, use one with role = "operate".';
  }

  /** Calls the listener at once and when the role is known. Returns a function that removes it. */
  watch(listener: Listener): () => void {
    this.listeners.add(listener);
    listener();
    return () => this.listeners.delete(listener);
  }
}

export const session = new Session();
