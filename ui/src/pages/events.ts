import { dictionary } from '../lib/dictionary';
import { apiOption, hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { exact, plural } from '../lib/format';
import { eventsSql, hopwise } from '../model/copies';
import { eventSheet, isFlowText } from '../model/events';
import * as ofFleet from '../model/fleet-sql';
import type { Page, Route } from '../router';
import { Settings } from '../settings';
import { times } from '../times';
import { EVENT_DEFAULTS, eventControls } from './events-controls';
import { EventFeed } from './events-feed';
import { eventRows } from './events-rows';

const DRAW_EVERY_MS = 250;

/** Live events, newest first. */
export function eventsPage(route: Route): Page {
  const pause = h('button', { type: 'button', aria: { pressed: 'false' } }, 'Pause');
  const settings = new Settings(route, EVENT_DEFAULTS);
  const controls = eventControls(settings, () => feed.change(controls.query()), pause);
  const feed = new EventFeed(controls.query());
  const rows = eventRows();
  const note = h('p', { class: 'stream-state', role: 'status' });
  const older = h('button', { type: 'button' }, 'Older events');

  function draw(): void {
    showConnection(note, feed);
    if (!feed.dirty || document.hidden) return;
    feed.dirty = false;
    rows.update(feed.selection(), feed.isNarrowed(), feed.log.completeSince);
    controls.showCounts(feed.log.counts, (kind) => feed.log.cut.has(kind));
    showEnd(older, feed.end);
  }

  pause.addEventListener('click', () => {
    feed.pause(!feed.paused);
    setText(pause, feed.paused ? 'Resume' : 'Pause');
    pause.setAttribute('aria-pressed', String(feed.paused));
    draw();
  });
  older.addEventListener('click', () => feed.older());
  show(pause, times.isLive());
  feed.connect();
  const timer = setInterval(draw, DRAW_EVERY_MS);
  const body = [controls.element, rows.element, h('div', { class: 'bar end' }, older)];
  return {
    element: h(
      'div',
      { class: 'page events' },
      panel('Events', { aside: note, hands: copies(feed) }, ...body),
    ),
    stop() {
      settings.stop();
      controls.stop();
      clearInterval(timer);
      feed.stop();
    },
  };
}

/** What asks for the events of the list. */
function copies(feed: EventFeed): HTMLElement {
  const limit = (): number => Math.max(1, feed.selection().length);
  const time = (): { from?: string; to?: string } => times.query();
  const conditions = (): Record<string, string | null> => {
    const { kinds, metric, node, filter } = feed.asked();
    const flow = isFlowText(filter) ? filter : null;
    // The server has one kind, or a condition.
    const several = kinds.size > 1 ? [...kinds].map((kind) => `kind == ${kind}`).join(' or ') : '';
    const parts = [flow === null ? filter : '', several].filter((part) => part.trim() !== '');
    const all = parts.length > 1 ? parts.map((part) => `(${part})`).join(' and ') : (parts[0] ?? '');
    const kind = kinds.size === 1 ? ([...kinds][0] ?? null) : null;
    return { kind, node: /^\d+$/.test(node) ? node : null, metric, flow, filter: all };
  };
  const chosen = () => {
    const { kinds, metric, node, filter } = feed.asked();
    const isFlow = isFlowText(filter);
    // A condition has no form in SQL.
    if (!isFlow && filter.trim() !== '') return null;
    return { ...time(), kinds: [...kinds], metric, node, flow: isFlow ? filter : '', limit: limit() };
  };
  return hands({
    title: 'Events',
    now: () => times.isLive(),
    asked: () => [{ path: 'events', params: { ...time(), ...conditions(), limit: limit() } }],
    sql() {
      const asked = chosen();
      return asked && eventsSql(asked);
    },
    fleetSql(fleet) {
      const asked = chosen();
      return asked && ofFleet.eventsSql(fleet, asked);
    },
    command: () => hopwise('events', { ...conditions(), ...time(), limit: limit(), api: apiOption() }),
    sheet: () => eventSheet(feed.selection(), feed.end === 'last' ? '' : 'Older events were not loaded.'),
  });
}

const CONNECTIONS = {
  live: 'live',
  connecting: 'connecting',
  lost: 'connection lost, trying again',
  stored: 'as exported to ClickHouse',
  past: 'as stored',
} as const;

function showConnection(note: HTMLElement, feed: EventFeed): void {
  const shed = feed.shed > 0 ? ` · ${plural(feed.shed, 'event')} skipped: too many for this page` : '';
  const state = feed.paused ? `paused, ${exact(feed.waiting.length)} waiting` : CONNECTIONS[feed.connection];
  setText(note, state + shed);
  note.dataset['state'] = feed.connection;
  note.classList.toggle('paused', feed.paused);
}

function showEnd(older: HTMLButtonElement, end: string): void {
  older.disabled = end === 'last';
  const texts = dictionary<string>({ more: 'Older events', last: 'No older events' });
  setText(older, texts[end] ?? `No older events: ${end}`);
}
