import { h, setText, show } from './lib/dom';
import { rangePicker } from './lib/range-picker';
import { rangeText, USUAL, utcText } from './model/range';
import { session } from './session';
import { REFRESHES, times } from './times';

/** Above the page: which time it shows, and how to choose another one. */
export function timeBar() {
  const picker = rangePicker(
    times.range,
    () => times.now(),
    (range) => times.set(range),
  );
  const refresh = h(
    'select',
    {},
    ...REFRESHES.map(({ seconds, text }) => h('option', { value: String(seconds) }, text)),
  );
  refresh.addEventListener('change', () => times.setRefresh(Number(refresh.value)));
  const refreshing = h('label', {}, 'refresh ', refresh);
  const pause = h('button', { type: 'button', on: { click: () => times.pause() } }, 'Hold');
  pause.title = 'Hold the displayed time';
  const text = h('strong', {});
  const utc = h('span', { class: 'muted' });
  const back = h('button', { type: 'button', on: { click: () => times.set(USUAL) } });
  const past = h('div', { class: 'past', role: 'status' }, text, utc, back);
  const element = h(
    'div',
    { class: 'time-bar' },
    h('div', { class: 'bar' }, picker.element, refreshing, pause),
    past,
  );
  show(element, false);
  return {
    element,
    show(shown: boolean): void {
      show(element, shown);
      times.shown = shown;
      const { range } = times;
      picker.set(range);
      refresh.value = String(times.refresh());
      show(refreshing, !times.isLive() && !times.isPast());
      show(pause, !times.isPast());
      show(past, !times.isUsual());
      setText(text, rangeText(range, times.now()));
      const where = session.console ? 'from ClickHouse' : 'from the store';
      setText(utc, where);
      setText(back, session.console ? 'back to the last 15 min' : 'back to live');
      past.classList.toggle('ended', times.isPast());
      past.title = utcText(times.limits());
    },
  };
}
