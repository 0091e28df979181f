import type { TelemetryEvent } from '../api/types';
import { code, empty, h } from '../lib/dom';
import { bothTimes, clock, dateTime, flowName, metricUnit, pathText, utc } from '../lib/format';
import { basisMark, kindLabel, sentence, tone } from '../model/events';
import { names } from '../lib/names';
import { watchEvent } from '../model/watch';
import { link } from '../router';

/** The list; a row is created once and then moved, so that an open row stays open. */
export function eventRows() {
  const list = h('ol', { class: 'event-list', aria: { label: 'Events, newest first' } });
  const nothing = h('div');
  const horizon = h(
    'li',
    { class: 'horizon' },
    'Before this time, only the newest events of each kind are shown: choose a kind, or load older events',
  );
  const made = new Map<TelemetryEvent, HTMLElement>();
  let named = names.version;
  return {
    element: h('div', {}, list, nothing),
    /** `completeSince`: before this time not all kinds are present; a line states it. */
    update(events: readonly TelemetryEvent[], filtered: boolean, completeSince: number): void {
      if (named !== names.version) {
        // The rows have ids, or other names.
        named = names.version;
        made.clear();
        list.replaceChildren();
      }
      const wanted = new Set(events);
      for (const [event, element] of made) {
        if (wanted.has(event)) continue;
        element.remove();
        made.delete(event);
      }
      horizon.remove();
      let at: Element | null = list.firstElementChild;
      for (const event of events) {
        const row = made.get(event) ?? eventRow(event);
        made.set(event, row);
        if (row === at) at = at.nextElementSibling;
        else list.insertBefore(row, at);
      }
      const first = filtered ? undefined : events.find((event) => event.ts < completeSince);
      if (first) list.insertBefore(horizon, made.get(first) ?? null);
      else horizon.remove();
      nothing.replaceChildren(...(events.length > 0 ? [] : [filtered ? noMatches() : nothingYet()]));
    },
  };
}

function noMatches(): HTMLElement {
  return empty(
    'No matching events',
    'Choose kinds with the buttons above; an empty field matches everything.',
  );
}

function nothingYet(): HTMLElement {
  return empty(
    'No events yet',
    'Events report new flows, values that change by more than their threshold, path changes, rules, drops and losses. ',
    code('hopwise demo'),
    ' makes all of them.',
  );
}

function eventRow(event: TelemetryEvent): HTMLElement {
  const details = h('div', { class: 'event-details' });
  details.hidden = true;
  const mark = basisMark(event.basis);
  const button = h(
    'button',
    { type: 'button', class: 'event-line', aria: { expanded: 'false' } },
    h('time', { title: bothTimes(event.ts) }, clock(event.ts)),
    h('span', { class: 'kind' }, kindLabel(event.kind)),
    h(
      'span',
      { class: 'sentence' },
      sentence(event),
      mark && h('em', { class: 'mark', title: mark.hint }, mark.mark),
    ),
    h('span', { class: 'event-flow' }, event.flow ? flowName(event.flow) : ''),
  );
  button.addEventListener('click', () => {
    details.hidden = !details.hidden;
    button.setAttribute('aria-expanded', String(!details.hidden));
    if (details.childElementCount === 0) details.append(eventDetails(event));
  });
  return h('li', { data: { tone: tone(event.kind), kind: event.kind } }, button, details);
}

function eventDetails(event: TelemetryEvent): HTMLElement {
  const facts: [string, string | null][] = [
    ['time', `${dateTime(event.ts)} (${BigInt(Math.round(event.ts))} ns)`],
    ['in UTC', utc(event.ts)],
    ['record', event.id],
    ['metric', event.metric],
    ['flow', event.text],
    ['node', withId(event.node, (node) => names.node(node))],
    ['interface', withId(event.interface, (id) => names.interface(event.node, id))],
    ['queue', text(event.queue)],
    ['value', inUnit(event.metric, event.value)],
    ['previous', inUnit(event.metric, event.previous)],
    ['threshold', inUnit(event.metric, event.threshold)],
    ['rule', text(event.rule)],
    ['reason', withId(event.reason, (code) => event.reason_name ?? names.reason(code))],
    ['basis', event.basis],
    ['path', event.path?.length ? pathText(event.path) : null],
  ];
  const shown = facts.filter((fact): fact is [string, string] => fact[1] !== null && fact[1] !== '');
  const list = h(
    'dl',
    { class: 'facts' },
    ...shown.flatMap(([name, value]) => [h('dt', {}, name), h('dd', { class: 'mono' }, value)]),
  );
  const watch = watchEvent(event);
  const links = [
    event.text ? h('a', { href: link('flow', event.text) }, 'Show the flow') : null,
    event.node === null
      ? null
      : h('a', { href: link('topology', String(event.node)) }, `Show node ${names.node(event.node)}`),
    watch && h('a', { href: link('intents', 'new', watch) }, 'watch this'),
  ];
  return h('div', {}, list, h('p', { class: 'links' }, ...links));
}

/** A name and its number; the number alone where there is no name. */
function withId(id: number | null, nameOf: (id: number) => string): string | null {
  if (id === null) return null;
  const name = nameOf(id);
  return name.endsWith(String(id)) ? String(id) : `${name} (${id})`;
}

/** An exact value with its unit. */
function inUnit(metric: string | null, value: number | null): string | null {
  return value === null ? null : `${value} ${metricUnit(metric)}`.trim();
}

function text(value: string | number | null): string | null {
  return value === null ? null : String(value);
}
