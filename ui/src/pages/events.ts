import { get } from '../api/client';
import { stream } from '../api/stream';
import type { NewsEvent } from '../api/types';
import { h, panel, setText, show } from '../lib/dom';
import { exact, plural } from '../lib/format';
import { beforeParameter, EventLog, KINDS, kindLabel, METRICS, metricLabel, tone } from '../model/events';
import type { Page, Route } from '../router';
import { eventRows } from './events-rows';

const KEPT_PER_KIND = 300;
const SHOWN = 400;
const PAGE = 200;
const DRAW_EVERY_MS = 250;

interface State {
  log: EventLog;
  kinds: Set<string>;
  metric: string;
  paused: boolean;
  waiting: NewsEvent[];
  shed: number;
  more: number;
}

/** Live news, newest first. */
export function eventsPage(route: Route): Page {
  const state: State = {
    log: new EventLog(KEPT_PER_KIND),
    kinds: new Set((route.query.get('kind') ?? '').split(',').filter((kind) => kind !== '')),
    metric: route.query.get('metric') ?? '',
    paused: false,
    waiting: [],
    shed: 0,
    more: SHOWN,
  };
  const controls = makeControls(route);
  const rows = eventRows();
  const note = h('p', { class: 'stream-state', role: 'status' });
  const older = h('button', { type: 'button' }, 'Older events');
  let live = { stop: (): void => undefined };
  let dirty = true;

  const filter = (): Record<string, string> => ({
    node: controls.node.value.trim(),
    flow: controls.flow.value.trim(),
  });

  function take(event: NewsEvent): void {
    if (!state.paused) {
      state.log.add(event);
      dirty = true;
    } else if (state.waiting.length < KEPT_PER_KIND * 4) state.waiting.push(event);
    else state.shed += 1;
  }

  function reconnect(): void {
    live.stop();
    state.log.clear();
    state.waiting = [];
    state.shed = 0;
    dirty = true;
    void load(null);
    live = stream(filter(), {
      event: take,
      shed: (count) => (state.shed += count),
      state: (now) => note.setAttribute('data-state', now),
    });
  }

  async function load(before: number | null): Promise<void> {
    const cursor = before === null ? null : beforeParameter(before);
    const kind = state.kinds.size === 1 ? [...state.kinds][0] : null;
    const asked = { ...filter(), kind, metric: state.metric, limit: PAGE, before: cursor };
    older.disabled = true;
    try {
      const answer = await get<{ events: NewsEvent[] }>('events', asked);
      for (const event of answer.events) state.log.add(event);
      setText(older, answer.events.length < PAGE ? 'No older events' : 'Older events');
      older.disabled = answer.events.length < PAGE;
      dirty = true;
    } catch {
      older.disabled = false;
      setText(older, 'Older events: no answer, try again');
    }
  }

  function draw(): void {
    if (!dirty || document.hidden) return drawNote(note, state);
    dirty = false;
    const shown = state.log.select({ kinds: state.kinds, metric: state.metric }, state.more);
    rows.update(
      shown,
      state.kinds.size > 0 || state.metric !== '' || Object.values(filter()).some((text) => text !== ''),
    );
    controls.showCounts(state.log.counts, state.kinds);
    drawNote(note, state);
  }

  controls.onKind((kind) => {
    if (!state.kinds.delete(kind)) state.kinds.add(kind);
    dirty = true;
    void load(null);
    draw();
  });
  controls.metric.addEventListener('change', () => {
    state.metric = controls.metric.value;
    dirty = true;
    void load(null);
  });
  for (const input of [controls.node, controls.flow]) input.addEventListener('change', reconnect);
  controls.pause.addEventListener('click', () => {
    state.paused = !state.paused;
    if (!state.paused) {
      for (const event of state.waiting) state.log.add(event);
      state.waiting = [];
      dirty = true;
    }
    setText(controls.pause, state.paused ? 'Resume' : 'Pause');
    controls.pause.setAttribute('aria-pressed', String(state.paused));
    draw();
  });
  older.addEventListener('click', () => {
    const shown = state.log.select({ kinds: state.kinds, metric: state.metric }, state.more);
    state.more += PAGE;
    void load(shown[shown.length - 1]?.ts ?? null);
  });

  reconnect();
  const timer = setInterval(draw, DRAW_EVERY_MS);
  const element = h(
    'div',
    { class: 'page events' },
    panel('Events', { aside: note }, controls.element, rows.element, h('div', { class: 'bar end' }, older)),
  );
  return {
    element,
    stop() {
      clearInterval(timer);
      live.stop();
    },
  };
}

function drawNote(note: HTMLElement, state: State): void {
  const shed = state.shed > 0 ? ` · ${plural(state.shed, 'event')} left out: too many for this page` : '';
  const texts: Readonly<Record<string, string>> = {
    live: 'live',
    connecting: 'connecting',
    lost: 'connection lost, trying again',
  };
  const connection = texts[note.dataset['state'] ?? ''] ?? '';
  const paused = `paused, ${exact(state.waiting.length)} waiting`;
  setText(note, (state.paused ? paused : connection) + shed);
  note.classList.toggle('paused', state.paused);
}

function makeControls(route: Route) {
  const chips = new Map(KINDS.map((kind) => [kind as string, chip(kind)]));
  const node = h('input', { id: 'filter-node', class: 'short', placeholder: 'any', autocomplete: 'off' });
  const flow = h('input', {
    id: 'filter-flow',
    placeholder: '10.0.0.1:5000>10.0.0.2:80/17',
    spellcheck: 'false',
    autocomplete: 'off',
  });
  node.value = route.query.get('node') ?? '';
  flow.value = route.query.get('flow') ?? '';
  const wanted = route.query.get('metric') ?? '';
  const options = METRICS.map((name) =>
    h('option', { value: name, selected: name === wanted }, metricLabel(name)),
  );
  const metric = h('select', { id: 'filter-metric' }, h('option', { value: '' }, 'any'), ...options);
  const pause = h('button', { type: 'button', aria: { pressed: 'false' } }, 'Pause');
  const fields = h(
    'div',
    { class: 'bar' },
    h('label', { for: 'filter-node' }, 'Node'),
    node,
    h('label', { for: 'filter-metric' }, 'Metric'),
    metric,
    h('label', { for: 'filter-flow' }, 'Flow'),
    flow,
    pause,
  );
  const kinds = h(
    'div',
    { class: 'chips', role: 'group', aria: { label: 'Kinds' } },
    ...[...chips.values()].map((made) => made.element),
  );
  return {
    element: h('div', { class: 'event-controls' }, kinds, fields),
    node,
    flow,
    metric,
    pause,
    onKind(listener: (kind: string) => void): void {
      for (const [kind, { element }] of chips) element.addEventListener('click', () => listener(kind));
    },
    showCounts(counts: ReadonlyMap<string, number>, chosen: ReadonlySet<string>): void {
      for (const [kind, made] of chips) made.update(counts.get(kind) ?? 0, chosen.has(kind));
    },
  };
}

function chip(kind: string) {
  const number = h('b', {}, '0');
  const element = h(
    'button',
    { class: 'chip', type: 'button', data: { tone: tone(kind) } },
    kindLabel(kind),
    number,
  );
  return {
    element,
    update(count: number, chosen: boolean): void {
      setText(number, exact(count));
      element.classList.toggle('zero', count === 0);
      element.setAttribute('aria-pressed', String(chosen));
      show(element, count > 0 || chosen || kind !== 'latest');
    },
  };
}
