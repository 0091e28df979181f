import { get } from '../api/client';
import type { Device, Domain } from '../api/manager';
import type { Flow } from '../api/types';
import { h } from '../lib/dom';
import { choices, type FlowField } from '../model/intents';

const FIELDS = ['src', 'dst', 'sport', 'dport', 'proto'] as const;
/** Flows are asked for again when a field gets the focus, at most this often. */
const AGAIN_MS = 5_000;
const FLOWS = 1_000;

type Inputs = Record<FlowField | 'edges' | 'between', HTMLInputElement>;

/** Completion of flows from those that were seen, and of places from the inventory. */
export function completion(inputs: Inputs) {
  const names = [...FIELDS, 'edges', 'between'] as const;
  const lists = names.map((name) => {
    inputs[name].setAttribute('list', `complete-${name}`);
    return h('datalist', { id: `complete-${name}` });
  });
  const list = (name: (typeof names)[number]): HTMLElement | undefined => lists[names.indexOf(name)];
  let flows: Flow[] = [];
  let asked = -Infinity;

  function offer(name: (typeof names)[number], values: readonly string[]): void {
    const box = list(name);
    const key = values.join('\n');
    if (!box || box.dataset['shown'] === key) return;
    box.dataset['shown'] = key;
    box.replaceChildren(...values.map((value) => h('option', { value })));
  }

  function offerFlows(): void {
    const typed = Object.fromEntries(FIELDS.map((name) => [name, inputs[name].value]));
    for (const name of FIELDS) offer(name, choices(flows, typed, name));
  }

  async function ask(): Promise<void> {
    if (performance.now() - asked < AGAIN_MS) return;
    asked = performance.now();
    try {
      ({ flows } = await get<{ flows: Flow[] }>('flows', { limit: FLOWS, sort: 'reports' }));
      offerFlows();
    } catch {
      // There is no completion now; the page says by itself that there is no answer.
    }
  }

  for (const name of FIELDS) {
    inputs[name].addEventListener('focus', () => void ask());
    inputs[name].addEventListener('change', offerFlows);
  }
  return {
    lists: h('div', {}, ...lists),
    know(devices: readonly Device[], domain: Domain | null): void {
      const edges = devices.filter(({ ports }) => ports.some(({ role }) => role === 'edge'));
      const labels = edges.flatMap((device) => device.labels);
      offer('edges', [...edges.map(({ name }) => name), ...new Set(labels)]);
      offer('between', domain?.hosts ?? []);
    },
  };
}
