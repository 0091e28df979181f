import { get, send } from '../api/client';
import type { Domain, Plan } from '../api/manager';
import { h, panel, setText, show } from '../lib/dom';
import { reasonOf } from '../lib/format';
import { session } from '../session';
import { readOnlyNote, restrict } from './domain';
import { planView } from './intents-plan';

/** Changes of the network that a person has to approve: what they are, and the button that does. Hidden if there are none. */
export function waitingPlan(after: () => void) {
  const view = planView();
  const message = h('p', { class: 'answer bad', role: 'alert' });
  const apply = h('button', { class: 'primary', type: 'button' }, 'Apply changes');
  const note = readOnlyNote();
  const element = panel(
    'Changes pending approval',
    { class: 'wide', aside: apply },
    view.element,
    message,
    note.element,
  );
  show(element, false);
  let waits = '';
  /** The plan that is shown. */
  let shown = '';

  async function read(): Promise<Plan> {
    const plan = await get<Plan>('plan');
    view.update(plan);
    shown = JSON.stringify(plan);
    return plan;
  }

  async function attempt(act: () => Promise<void>): Promise<void> {
    try {
      setText(message, '');
      await act();
    } catch (error) {
      setText(message, reasonOf(error));
    }
  }

  apply.addEventListener('click', () => {
    apply.disabled = true;
    void attempt(async () => {
      // Nobody approves what they have not seen.
      const seen = shown;
      if (JSON.stringify(await read()) !== seen) {
        setText(message, 'The plan has changed. Review it and apply again.');
        return;
      }
      await send<Plan>('POST', 'plan/apply');
      after();
    }).finally(() => restrict(apply));
  });
  const ended = session.watch(() => restrict(apply));
  return {
    element,
    update(domain: Domain | null): void {
      const now = domain?.manual ? domain.waits : '';
      show(element, now !== '');
      if (now === waits) return;
      waits = now;
      if (now !== '') void attempt(async () => void (await read()));
    },
    stop(): void {
      ended();
      note.stop();
    },
  };
}
