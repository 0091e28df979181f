import { get } from '../api/client';
import { stream } from '../api/stream';
import { live } from '../live';
import { times } from '../times';
import type { TelemetryEvent } from '../api/types';
import { reasonOf } from '../lib/format';
import { EventLog, isFlowText, nextPage, RARE_KINDS, type Filter, type PageEnd } from '../model/events';

const KEPT_PER_KIND = 300;
const MAX_PER_KIND = 3000;
const MAX_WAITING = 2000;
const SHOWN = 400;
const PAGE = 200;
const RARE = 40;

export type Connection = 'connecting' | 'live' | 'lost' | 'stored' | 'past';

/** The values of the fields. */
export interface EventQuery extends Filter {
  node: string;
  /** A condition, which the server judges. */
  filter: string;
}

/** The events of the page: live ones, older pages, and those that wait while it is paused. Bounded in all three. */
export class EventFeed {
  readonly log = new EventLog(KEPT_PER_KIND);
  connection: Connection = 'connecting';
  paused = false;
  waiting: TelemetryEvent[] = [];
  /** Events skipped by the server because this client was slow, or by the page because it was paused for long. */
  shed = 0;
  /** Whether there are older pages (`more`, `last`), or why they cannot be loaded. */
  end: 'more' | 'last' | string = 'more';
  /** Called when there is something to draw. */
  dirty = true;
  private pageEnd: PageEnd | null = null;
  private most = SHOWN;
  private live: { stop(): void } | undefined;
  private loads = 0;
  private stopped = false;

  constructor(private query: EventQuery) {}

  /** Changes the query. A change of a filter of the server (node, filter) reloads; a change of a filter of the page only loads more. */
  change(query: EventQuery): void {
    if (this.stopped) return;
    const before = JSON.stringify(this.serverPart());
    this.query = query;
    this.dirty = true;
    if (JSON.stringify(this.serverPart()) === before) void this.load({});
    else this.connect();
  }

  connect(): void {
    if (this.stopped) return;
    this.live?.stop();
    this.log.clear();
    this.waiting = [];
    this.shed = 0;
    this.pageEnd = null;
    this.dirty = true;
    void this.load({});
    if (live.hasStore()) void this.loadRare();
    if (!times.isLive()) {
      this.connection = times.isUsual() ? 'stored' : 'past';
      return;
    }
    this.live = stream(this.serverPart(), {
      event: (event) => this.take(event),
      shed: (count) => (this.shed += count),
      state: (connection) => (this.connection = connection),
    });
  }

  stop(): void {
    this.stopped = true;
    this.live?.stop();
    this.loads += 1;
  }

  selection(): TelemetryEvent[] {
    return this.log.select(this.query, this.most);
  }

  /** What was asked for. */
  asked(): Readonly<EventQuery> {
    return this.query;
  }

  /** Whether the page itself filters. */
  isNarrowed(): boolean {
    const { kinds, metric } = this.query;
    return kinds.size > 0 || metric !== '';
  }

  pause(paused: boolean): void {
    this.paused = paused;
    if (paused) return;
    for (const event of this.waiting) this.log.add(event);
    this.waiting = [];
    this.dirty = true;
  }

  /** Loads the page before the oldest event that is shown without a gap. */
  older(): void {
    const shown = this.selection();
    const oldest = shown[shown.length - 1]?.ts ?? null;
    const { completeSince } = this.log;
    this.log.grow(PAGE, MAX_PER_KIND);
    this.most += PAGE;
    // What the page itself selects is complete as far as it was loaded.
    const gap = !this.isNarrowed() && completeSince > 0 ? completeSince : null;
    void this.load(nextPage(this.pageEnd, this.pageEnd === null ? (gap ?? oldest) : gap));
  }

  private take(event: TelemetryEvent): void {
    if (!this.paused) {
      this.log.add(event);
      this.dirty = true;
    } else if (this.waiting.length < MAX_WAITING) this.waiting.push(event);
    else this.shed += 1;
  }

  /** What the server filters by. A complete flow has an index. */
  private serverPart(): { node: string; flow: string; filter: string } {
    const { node, filter } = this.query;
    const isFlow = isFlowText(filter);
    return { node: /^\d+$/.test(node) ? node : '', flow: isFlow ? filter : '', filter: isFlow ? '' : filter };
  }

  /** The newest of each rare kind, one request after the other. The page also works without them. */
  private async loadRare(): Promise<void> {
    const part = this.serverPart();
    for (const kind of RARE_KINDS) {
      const answer = await get<{ events: TelemetryEvent[] }>('events', {
        ...chosen(),
        ...part,
        kind,
        limit: RARE,
      }).catch(() => null);
      if (this.stopped || JSON.stringify(part) !== JSON.stringify(this.serverPart())) return;
      const found = answer?.events ?? [];
      for (const event of found) this.log.add(event);
      if (found.length === RARE) this.log.cut.add(kind);
      this.dirty = true;
    }
  }

  private async load(page: ReturnType<typeof nextPage>): Promise<void> {
    const mine = (this.loads += 1);
    if (!live.hasStore()) {
      this.end = 'nothing is stored on disk';
      return;
    }
    const { kinds, metric } = this.query;
    const narrowed = kinds.size > 0 || metric !== '';
    const kind = kinds.size === 1 ? [...kinds][0] : null;
    try {
      const requested = { ...chosen(), ...this.serverPart(), kind, metric, limit: PAGE, ...page };
      const { events, next } = await get<{ events: TelemetryEvent[]; next: string | null }>(
        'events',
        requested,
      );
      if (mine !== this.loads) return;
      for (const event of events) this.log.add(event);
      this.end = next === null ? 'last' : 'more';
      const since = events[events.length - 1]?.ts ?? this.pageEnd?.since ?? 0;
      this.pageEnd = next === null ? null : { after: next, since };
      if (!narrowed) this.log.completeSince = next === null ? 0 : since;
    } catch (error) {
      if (mine !== this.loads) return;
      this.end = reasonOf(error);
    }
    this.dirty = true;
  }
}

/** The newest events are shown whatever their time, unless another one is chosen. */
function chosen(): Record<string, string> {
  return times.isUsual() ? {} : times.query();
}
