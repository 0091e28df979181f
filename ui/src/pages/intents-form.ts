import { send } from '../api/client';
import type { Intent, Plan } from '../api/manager';
import { h, panel, setText, show, type Child } from '../lib/dom';
import { percent } from '../lib/format';
import { EMPTY, fromKept, METRICS, toIntent, type Draft } from '../model/intents';

const KEPT = 'hopwise-intent-draft';

interface Options {
  /** A plan was made, or is no longer shown. */
  planned(plan: Plan | null): void;
  /** An intent was added. */
  added(intent: Intent): void;
}

/** The form of an intent: plan first, then apply. What is typed is kept until it is applied, also when the page is left. */
export function intentForm(options: Options) {
  const fields = inputs();
  const message = h('p', { class: 'answer', role: 'status' });
  const plan = planView();
  const apply = h('button', { class: 'primary', type: 'submit' }, 'Apply');
  const dry = h('button', { type: 'button' }, 'Show plan');
  const clear = h('button', { type: 'button', class: 'quiet' }, 'Clear');
  const form = h(
    'form',
    { class: 'intent-form' },
    ...fields.rows,
    h('div', { class: 'bar' }, dry, apply, clear),
  );
  const element = panel('Watch flows', { class: 'watch-flows' }, form, message, plan.element);

  async function ask<T>(what: string, method: string, path: string): Promise<T | null> {
    setText(message, what);
    message.className = 'answer';
    for (const button of [apply, dry]) button.disabled = true;
    try {
      const answer = await send<T>(method, path, toIntent(fields.read()));
      setText(message, '');
      return answer;
    } catch (error) {
      message.className = 'answer bad';
      setText(message, error instanceof Error ? error.message : String(error));
      return null;
    } finally {
      for (const button of [apply, dry]) button.disabled = false;
    }
  }

  function showPlan(answer: Plan | null): void {
    plan.update(answer);
    options.planned(answer);
  }

  dry.addEventListener('click', () => {
    void ask<Plan>('planning …', 'POST', 'intents/plan').then((answer) => showPlan(answer));
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void ask<Intent>('applying …', 'PUT', 'intents').then((answer) => {
      if (!answer) return;
      message.className = 'answer good';
      setText(message, `${answer.name} is added: ${answer.text}`);
      showPlan(null);
      sessionStorage.removeItem(KEPT);
      fields.write(EMPTY);
      options.added(answer);
    });
  });
  form.addEventListener('input', () => {
    sessionStorage.setItem(KEPT, JSON.stringify(fields.read()));
    showPlan(null);
  });
  clear.addEventListener('click', () => {
    sessionStorage.removeItem(KEPT);
    fields.write(EMPTY);
    setText(message, '');
    showPlan(null);
  });
  fields.write(fromKept(sessionStorage.getItem(KEPT)));
  return {
    element,
    fill(draft: Draft): void {
      fields.write(draft);
      sessionStorage.setItem(KEPT, JSON.stringify(draft));
      showPlan(null);
      fields.focus();
    },
  };
}

function field(label: string, input: HTMLElement, hint = ''): HTMLElement {
  return h('label', { class: 'field', title: hint }, h('span', {}, label), input);
}

function text(name: string, placeholder: string): HTMLInputElement {
  return h('input', {
    type: 'text',
    placeholder,
    spellcheck: 'false',
    autocomplete: 'off',
    data: { key: name },
  });
}

function select(choices: readonly [string, string][]): HTMLSelectElement {
  return h('select', {}, ...choices.map(([value, title]) => h('option', { value }, title)));
}

function inputs() {
  const name = text('name', 'web');
  const flows = {
    src: text('src', 'any, or 10.0.0.0/8, …'),
    dst: text('dst', 'any, or 10.0.0.0/8, …'),
    sport: text('sport', 'any'),
    dport: text('dport', 'any, or 443, 8000-8999'),
    proto: text('proto', 'any, or tcp, udp'),
  };
  const both = h('input', { type: 'checkbox' });
  const watch = METRICS.map((metric) => ({ metric, box: h('input', { type: 'checkbox' }) }));
  const mode = select([
    ['auto', 'the cheapest'],
    ['md', 'INT-MD'],
    ['mx', 'INT-MX'],
    ['postcard', 'postcards'],
    ['sf', 'SF-INT'],
  ]);
  const edges = text('edges', 'everywhere, or leaf*, …');
  const filter = select([
    ['', 'every packet'],
    ['per_hop', 'changes at a hop'],
    ['per_flow', 'changes of a flow'],
    ['change', 'changes of path or bucket'],
  ]);
  const metric = select(METRICS.filter((one) => one !== 'flow_path').map((one) => [one, one]));
  const threshold = text('threshold', 'more than, as 20us');
  const until = text('until', 'never, or 2h');
  const of = field('Of', metric);
  const by = field('By', threshold);
  const compares = (): void => {
    for (const one of [of, by]) show(one, filter.value.startsWith('per_'));
  };
  filter.addEventListener('change', compares);
  const metrics = watch.map(({ metric, box }) => h('label', { class: 'check' }, box, metric));
  const group = (title: string, ...children: Child[]): HTMLElement =>
    h('fieldset', {}, h('legend', {}, title), h('div', { class: 'fields' }, ...children));
  const rows = [
    field('Name', name, 'Letters, digits, “.”, “_” and “-”'),
    group(
      'Flows',
      field('Source', flows.src),
      field('Destination', flows.dst),
      field('Source port', flows.sport),
      field('Port', flows.dport),
      field('Protocol', flows.proto),
      h('label', { class: 'check' }, both, 'both directions'),
    ),
    group('Watch', ...metrics),
    group(
      'How',
      field('Mode', mode),
      field('At', edges, 'Names or labels of edge devices'),
      field('Report', filter),
      of,
      by,
      field('Until', until),
    ),
  ];
  return {
    rows,
    focus: () => name.focus(),
    read: (): Draft => ({
      name: name.value,
      src: flows.src.value,
      dst: flows.dst.value,
      sport: flows.sport.value,
      dport: flows.dport.value,
      proto: flows.proto.value,
      both: both.checked,
      watch: watch.filter(({ box }) => box.checked).map(({ metric }) => metric),
      mode: mode.value,
      edges: edges.value,
      filter: filter.value,
      metric: metric.value,
      threshold: threshold.value,
      until: until.value,
    }),
    write(draft: Draft): void {
      name.value = draft.name;
      for (const key of ['src', 'dst', 'sport', 'dport', 'proto'] as const) flows[key].value = draft[key];
      both.checked = draft.both;
      for (const { metric, box } of watch) box.checked = draft.watch.includes(metric);
      mode.value = draft.mode;
      edges.value = draft.edges;
      filter.value = draft.filter;
      metric.value = draft.metric;
      threshold.value = draft.threshold;
      until.value = draft.until;
      compares();
    },
  };
}

/** What would change, and what it costs. */
function planView() {
  const cost = h('p', {});
  const lines = h('ul', { class: 'plan-lines' });
  const notes = h('ul', { class: 'plan-notes' });
  const element = h('div', { class: 'plan', role: 'status' }, h('h3', {}, 'Plan'), cost, lines, notes);
  show(element, false);
  return {
    element,
    update(plan: Plan | null): void {
      show(element, plan !== null);
      if (!plan) return;
      const bytes = plan.cost?.bytes ?? [];
      const most = bytes.length > 0 ? Math.max(...bytes) : 0;
      setText(
        cost,
        plan.cost
          ? `${plan.cost.mode}: ${plan.cost.instructions}; at most ${most} bytes in a packet, ${percent(plan.cost.goodput)} of a link left for hosts at the MTU`
          : '',
      );
      lines.replaceChildren(...plan.text.split('\n').map((line) => h('li', {}, line)));
      notes.replaceChildren(...plan.notes.map((line) => h('li', {}, line)));
    },
  };
}
