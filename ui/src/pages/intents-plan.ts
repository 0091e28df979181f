import type { Plan } from '../api/manager';
import { h, show } from '../lib/dom';
import { costRows } from '../model/intents';

/** What would change, and what it costs. */
export function planView() {
  const cost = h('dl', { class: 'facts' });
  const lines = h('ul', { class: 'plan-lines' });
  const devices = h('div', { class: 'plan-devices' });
  const notes = h('ul', { class: 'plan-notes' });
  const element = h(
    'div',
    { class: 'plan', role: 'status' },
    h('h3', {}, 'Plan'),
    cost,
    lines,
    devices,
    notes,
  );
  show(element, false);
  return {
    element,
    update(plan: Plan | null): void {
      show(element, plan !== null);
      if (!plan) return;
      const rows = plan.cost ? costRows(plan.cost) : [];
      cost.replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
      lines.replaceChildren(...plan.text.split('\n').map((line) => h('li', {}, line)));
      devices.replaceChildren(...plan.devices.slice(0, MOST).map(deviceChanges));
      notes.replaceChildren(...plan.notes.map((line) => h('li', {}, line)));
    },
  };
}

/** Of more devices than this, the summary says enough. */
const MOST = 50;

function deviceChanges({ name, added, removed, changes }: Plan['devices'][number]): HTMLElement {
  const count = [added > 0 ? `+${added}` : '', removed > 0 ? `−${removed}` : ''].filter(
    (part) => part !== '',
  );
  const lines = changes.map((change) => h('li', {}, change));
  return h(
    'details',
    {},
    h('summary', {}, `${name} ${count.join(' ')}`),
    h('ul', { class: 'rules' }, ...lines),
  );
}
