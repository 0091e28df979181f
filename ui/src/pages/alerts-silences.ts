import { get, send } from '../api/client';
import { poll } from '../api/poll';
import type { Silence, Silences } from '../api/types';
import { code, h, panel, setText, show } from '../lib/dom';
import { dateTime, reasonOf } from '../lib/format';
import { session } from '../session';

/** The silences that last, and how to end them. */
export function silencesPanel(changed: () => void) {
  const list = h('ul', { class: 'silences' });
  const none = h('p', { class: 'muted' }, 'No active silences. Select an alert to silence it.');
  const problem = h('p', { class: 'filter-fault', role: 'alert' });
  const element = panel('Silences', { class: 'wide' }, none, list, problem);
  let shown = '';

  async function end(id: number): Promise<void> {
    try {
      await send('DELETE', `alerts/silences/${id}`);
      setText(problem, '');
    } catch (error) {
      setText(problem, reasonOf(error));
    }
    show(problem, problem.textContent !== '');
    polled.now();
    changed();
  }

  function item(one: Silence): HTMLElement {
    const said = one.comment === '' ? '' : `: ${one.comment}`;
    const button = h('button', { type: 'button', on: { click: () => void end(one.id) } }, 'End');
    button.disabled = !session.mayOperate();
    button.title = session.reason();
    button.setAttribute('aria-label', `End silence ${one.id}`);
    const text = ` until ${dateTime(one.until).slice(0, 19)}, by ${one.by}${said} `;
    return h('li', {}, code(one.filter), text, button);
  }

  const polled = poll<Silences>({
    intervalMs: 10_000,
    request: (signal) => get<Silences>('alerts/silences', {}, signal),
    show({ silences }) {
      const active = silences.filter((one) => one.active);
      const text = JSON.stringify([active, session.mayOperate()]);
      if (text === shown) return;
      shown = text;
      show(none, active.length === 0);
      list.replaceChildren(...active.map(item));
    },
  });
  show(problem, false);
  return { element, now: () => polled.now(), stop: () => polled.stop() };
}
