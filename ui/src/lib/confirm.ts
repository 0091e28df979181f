import { h, setText } from './dom';

interface Options {
  /** What it says. */
  label(): string;
  /** What it says when it was pressed once; empty: no question. */
  question(): string;
  act(): void;
}

/** How long the second press is waited for. */
const WAIT_MS = 6_000;

/** A button that asks before it acts: the first press arms it, the second one acts. Escape, or leaving it, disarms. */
export function confirmButton(options: Options) {
  const element = h('button', { type: 'button' });
  let timer: ReturnType<typeof setTimeout> | undefined;
  let armed = false;

  function update(): void {
    setText(element, armed ? options.question() : options.label());
    element.classList.toggle('armed', armed);
  }

  function arm(on: boolean): void {
    clearTimeout(timer);
    armed = on;
    if (on) timer = setTimeout(() => arm(false), WAIT_MS);
    update();
  }

  element.addEventListener('click', () => {
    const act = armed || options.question() === '';
    arm(!act);
    if (act) options.act();
  });
  element.addEventListener('blur', () => arm(false));
  element.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') arm(false);
  });
  update();
  return { element, update, disarm: () => arm(false) };
}
