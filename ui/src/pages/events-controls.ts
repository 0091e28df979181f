import { h, setText, show } from '../lib/dom';
import { filterField } from '../lib/filter-field';
import { exact } from '../lib/format';
import { KINDS, kindLabel, METRICS, metricLabel, PUSHED, tone } from '../model/events';
import type { Settings } from '../settings';
import type { EventQuery } from './events-feed';

/** What a person sets, by the names in the address. `kind` is a list with commas. */
export const EVENT_DEFAULTS = { kind: '', node: '', metric: '', filter: '' };

export type EventSettings = Settings<typeof EVENT_DEFAULTS>;

export interface Controls {
  element: HTMLElement;
  query(): EventQuery;
  stop(): void;
  /** `hasMore`: more events of a kind are stored than were counted. */
  showCounts(counts: ReadonlyMap<string, number>, hasMore: (kind: string) => boolean): void;
}

/** The buttons of the kinds, and the fields. `changed` is called when the query changes. */
export function eventControls(settings: EventSettings, changed: () => void, pause: HTMLElement): Controls {
  const chosen = new Set(
    settings
      .get('kind')
      .split(',')
      .filter((kind) => kind !== ''),
  );
  const chips = new Map(KINDS.map((kind) => [kind as string, chip(kind)]));
  for (const [kind, { element }] of chips) {
    element.addEventListener('click', () => {
      if (!chosen.delete(kind)) chosen.add(kind);
      element.setAttribute('aria-pressed', String(chosen.has(kind)));
      settings.set({ kind: [...chosen].join(',') });
      changed();
    });
    element.setAttribute('aria-pressed', String(chosen.has(kind)));
  }
  const { node, metric } = fields(settings);
  for (const field of [node, metric]) {
    field.addEventListener('change', () => {
      settings.set({ node: node.value.trim(), metric: metric.value });
      changed();
    });
  }
  const filter = filterField({
    view: 'events',
    label: 'Filter of events',
    value: settings.get('filter'),
    changed(text) {
      settings.set({ filter: text });
      changed();
    },
  });
  const labelled = (text: string, field: HTMLElement): HTMLElement => h('label', { for: field.id }, text);
  const bar = h('div', { class: 'bar' });
  bar.append(labelled('Node', node), node, labelled('Metric', metric), metric, filter.element, pause);
  const buttons = [...chips.values()].map((made) => made.element);
  const kinds = h('div', { class: 'chips', role: 'group', aria: { label: 'Kinds' } }, ...buttons);
  return {
    element: h('div', { class: 'event-controls' }, kinds, bar),
    query: () => ({
      kinds: new Set(chosen),
      metric: metric.value,
      node: node.value.trim(),
      filter: filter.value(),
    }),
    stop: () => filter.stop(),
    showCounts(counts, hasMore): void {
      for (const [kind, made] of chips) made.update(counts.get(kind) ?? 0, chosen.has(kind), hasMore(kind));
    },
  };
}

function fields(settings: EventSettings) {
  const node = h('input', { id: 'filter-node', class: 'short', placeholder: 'any', autocomplete: 'off' });
  node.inputMode = 'numeric';
  node.pattern = '[0-9]*';
  const wanted = settings.get('metric');
  const options = METRICS.map((name) =>
    h('option', { value: name, selected: name === wanted }, metricLabel(name)),
  );
  const metric = h('select', { id: 'filter-metric' }, h('option', { value: '' }, 'any'), ...options);
  node.value = settings.get('node');
  return { node, metric };
}

function chip(kind: string) {
  const number = h('b', {}, '0');
  const title = 'Loaded by this page; +: more are stored. Click to show only this kind';
  const props = { class: 'chip', type: 'button', title, data: { tone: tone(kind) } };
  const element = h('button', props, kindLabel(kind), number);
  return {
    element,
    update(count: number, chosen: boolean, hasMore: boolean): void {
      setText(number, `${exact(count)}${hasMore && count > 0 ? '+' : ''}`);
      element.classList.toggle('zero', count === 0);
      // The periodic push is not a change; its button appears with its first event.
      show(element, count > 0 || chosen || kind !== PUSHED);
    },
  };
}
