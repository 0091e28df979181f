import { timeText } from './hands';
import { h, setText } from './lib/dom';
import { dateTime } from './lib/format';
import { useLight } from './lib/theme';
import { zoneText } from './model/range';
import { times } from './times';

/** What stands above the page on paper: what it is, which time it shows, and when it was printed. On paper, colours are light. */
export function printHead(): HTMLElement {
  const title = h('strong', {});
  const range = h('span', {});
  const printed = h('span', {});
  let restore: (() => void) | null = null;
  const begin = (): void => {
    const now = times.now();
    setText(title, document.title);
    setText(range, timeText());
    setText(
      printed,
      `printed ${dateTime(now * 1e6).slice(0, 19)}, times: ${zoneText(times.limits().from, now)}`,
    );
    document.documentElement.classList.add('printing');
    restore ??= useLight();
  };
  const end = (): void => {
    document.documentElement.classList.remove('printing');
    restore?.();
    restore = null;
  };
  window.addEventListener('beforeprint', begin);
  window.addEventListener('afterprint', end);
  return h('div', { class: 'print-head' }, title, range, printed);
}
