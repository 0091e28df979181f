import { send } from '../api/client';
import type { Domain } from '../api/manager';
import { confirmButton } from '../lib/confirm';
import { h, setText, show } from '../lib/dom';
import { reasonOf } from '../lib/format';
import { session } from '../session';

/** The one control of all INT. */
export function domainControl(after: () => void) {
  let domain: Domain | null = null;
  const message = h('span', { class: 'answer bad', role: 'alert' });
  const button = confirmButton({
    label: () => (domain?.stopped ? 'Start INT' : 'Stop all INT'),
    question: () => (domain?.stopped ? '' : 'Stop all INT?'),
    act: () => void act(),
  });

  async function act(): Promise<void> {
    setText(message, '');
    try {
      await send<Domain>('POST', domain?.stopped ? 'domain/start' : 'domain/stop');
    } catch (error) {
      setText(message, reasonOf(error));
    }
    after();
  }

  const ended = session.watch(() => restrict(button.element));
  return {
    element: h('span', { class: 'bar' }, message, button.element),
    update(now: Domain | null): void {
      domain = now;
      show(button.element, now !== null);
      button.update();
    },
    stop: ended,
  };
}

/** Disables a button, with the reason, if the token may only read. */
export function restrict(button: HTMLButtonElement): void {
  button.disabled = !session.mayOperate();
  button.title = session.reason();
}

/** A sentence that says why controls are disabled; hidden if they are not. */
export function readOnlyNote(): { element: HTMLElement; stop(): void } {
  const element = h('p', { class: 'muted read-only', role: 'note' });
  const stop = session.watch(() => {
    setText(element, session.reason());
    show(element, session.reason() !== '');
  });
  return { element, stop: () => void stop() };
}
