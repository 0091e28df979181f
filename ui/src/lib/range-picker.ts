import { between, LENGTHS, lengthText, limits, shift, zoomOut, type Range } from '../model/range';
import { h, setText, show } from './dom';

export interface RangePicker {
  element: HTMLElement;
  /** Shows another range, without a call of `change`. */
  set(range: Range): void;
}

/** Chooses the time of a page: its last minutes, or from one time to another. `now`: ms. */
export function rangePicker(first: Range, now: () => number, change: (range: Range) => void): RangePicker {
  let range = first;
  const choose = (next: Range): void => {
    set(next);
    change(next);
  };
  const lengths = LENGTHS.map(({ seconds, label }) =>
    h('button', { type: 'button', on: { click: () => choose({ last: seconds }) } }, label),
  );
  const step = (text: string, title: string, next: () => Range): HTMLButtonElement =>
    h('button', { type: 'button', title, aria: { label: title }, on: { click: () => choose(next()) } }, text);
  const [from, to] = [timeInput('from'), timeInput('to')];
  const message = h('span', { class: 'range-message', role: 'status' });
  const form = h(
    'form',
    { class: 'range-custom', on: { submit: (event) => event.preventDefault() } },
    h('label', {}, 'from ', from),
    h('label', {}, 'to ', to),
    h('button', { type: 'submit' }, 'Show'),
    message,
  );
  form.addEventListener('submit', () => {
    const [start, end] = [new Date(from.value).getTime(), new Date(to.value).getTime()];
    const isSpan = start < end;
    setText(message, isSpan ? '' : 'the first time must be before the second');
    if (isSpan) choose(between(start, end));
  });
  const more = h('button', { type: 'button', aria: { expanded: 'false' } }, 'Times …');
  more.addEventListener('click', () => {
    const isOpen = more.getAttribute('aria-expanded') === 'true';
    show(form, !isOpen);
    more.setAttribute('aria-expanded', String(!isOpen));
  });
  const text = h('span', { class: 'range-text muted' });
  const element = h(
    'div',
    { class: 'range', role: 'group', aria: { label: 'Time' } },
    h('div', { class: 'segments' }, ...lengths),
    step('‹', 'The time before', () => shift(range, -1, now())),
    step('›', 'The time after', () => shift(range, 1, now())),
    step('⊖', 'Twice as long', () => zoomOut(range, now())),
    more,
    text,
    form,
  );

  function set(next: Range): void {
    range = next;
    LENGTHS.forEach(({ seconds }, i) =>
      lengths[i]?.setAttribute('aria-pressed', String('last' in next && next.last === seconds)),
    );
    const { from: start, to: end } = limits(next, now());
    [from.value, to.value] = [localTime(start), localTime(end)];
    const isLive = 'last' in next;
    if (!isLive) more.setAttribute('aria-expanded', 'true');
    show(form, more.getAttribute('aria-expanded') === 'true');
    setText(text, isLive ? `the last ${lengthText(next.last)}` : '');
    text.title = `${new Date(start).toISOString()} to ${new Date(end).toISOString()} (UTC)`;
  }

  set(first);
  return { element, set };
}

function timeInput(name: string): HTMLInputElement {
  const input = h('input', { type: 'datetime-local', aria: { label: `${name}, local time` } });
  input.step = '1';
  return input;
}

/** As `datetime-local` takes it. */
function localTime(ms: number): string {
  const offset = new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - offset).toISOString().slice(0, 19);
}
