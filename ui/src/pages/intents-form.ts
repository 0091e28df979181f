import { send, type Condition } from '../api/client';
import type { Device, Domain, Intent, Plan } from '../api/manager';
import { h, panel, setText, show, type Child } from '../lib/dom';
import { reasonOf } from '../lib/format';
import {
  condition,
  EMPTY,
  fromKept,
  METRICS,
  saysMore,
  toIntent,
  type Draft,
  type TextKey,
} from '../model/intents';
import { session } from '../session';
import { completion } from './intents-complete';
import { planView } from './intents-plan';

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
  const derived = h('p', { class: 'derived', role: 'note' });
  const reason = h('p', { class: 'muted', id: 'read-only', role: 'note' });
  const plan = planView();
  const apply = h(
    'button',
    { class: 'primary', type: 'submit', aria: { describedby: 'read-only' } },
    'Apply',
  );
  const dry = h('button', { type: 'button' }, 'Show plan');
  const clear = h('button', { type: 'button', class: 'quiet' }, 'Clear');
  const form = h(
    'form',
    { class: 'intent-form' },
    derived,
    ...fields.rows,
    h('div', { class: 'bar' }, dry, apply, clear),
    reason,
  );
  const element = panel('Watch flows', { class: 'watch-flows' }, form, message, plan.element);
  let busy = false;
  /** The intent that is changed, if it is not a new one. */
  let edited = { edits: '', etag: '' };

  function enable(): void {
    dry.disabled = busy;
    apply.disabled = busy || !session.mayOperate();
    setText(reason, session.reason());
    show(reason, session.reason() !== '');
  }

  function current(): Draft {
    return { ...fields.read(), ...edited, derived: derived.textContent ?? '' };
  }

  function keep(): void {
    sessionStorage.setItem(KEPT, JSON.stringify(current()));
  }

  function write(draft: Draft): void {
    fields.write(draft);
    edited = { edits: draft.edits, etag: draft.etag };
    setText(derived, draft.derived);
    show(derived, draft.derived !== '');
  }

  async function ask<T>(what: string, method: string, path: string, only?: Condition): Promise<T | null> {
    setText(message, what);
    message.className = 'answer';
    busy = true;
    enable();
    try {
      const answer = await send<T>(method, path, toIntent(fields.read()), only);
      setText(message, '');
      return answer;
    } catch (error) {
      message.className = 'answer bad';
      setText(message, reasonOf(error));
      return null;
    } finally {
      busy = false;
      enable();
    }
  }

  function showPlan(answer: Plan | null): void {
    plan.update(answer);
    options.planned(answer);
  }

  function empty(): void {
    sessionStorage.removeItem(KEPT);
    write(EMPTY);
    showPlan(null);
  }

  dry.addEventListener('click', () => {
    void ask<Plan>('planning …', 'POST', 'intents/plan').then((answer) => showPlan(answer));
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    // Enter in a field submits, too.
    if (apply.disabled) return;
    const only = condition(current());
    void ask<Intent>('applying …', 'PUT', 'intents', only).then((answer) => {
      if (!answer) return;
      message.className = 'answer good';
      // How far it is stands in the list and in its details, which change.
      setText(message, `${answer.name} was ${only === 'new' ? 'added' : 'changed'}.`);
      empty();
      options.added(answer);
    });
  });
  form.addEventListener('input', () => {
    keep();
    showPlan(null);
  });
  clear.addEventListener('click', () => {
    setText(message, '');
    empty();
  });
  write(fromKept(sessionStorage.getItem(KEPT)));
  const ended = session.watch(enable);
  return {
    element,
    /** Names for the completion. */
    know: (devices: readonly Device[], domain: Domain | null) => fields.know(devices, domain),
    fill(draft: Draft): void {
      write(draft);
      keep();
      setText(message, '');
      showPlan(null);
      fields.focus();
    },
    stop: ended,
  };
}

/** A labelled input; the hint is part of the label, so that everyone gets it. */
function field(label: string, input: HTMLElement, hint = '', kind = ''): HTMLElement {
  const about = hint === '' ? null : h('small', {}, ` ${hint}`);
  return h('label', { class: `field ${kind}`.trim() }, h('span', {}, label, about), input);
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

/** Everything that is typed or chosen, by the key of the draft. */
function controls() {
  return {
    name: text('name', 'web'),
    src: text('src', 'any'),
    dst: text('dst', 'any'),
    sport: text('sport', 'any'),
    dport: text('dport', 'any'),
    proto: text('proto', 'any'),
    mode: select([
      ['auto', 'the cheapest'],
      ['md', 'INT-MD'],
      ['mx', 'INT-MX'],
      ['postcard', 'postcards'],
      ['sf', 'SF-INT'],
    ]),
    sample: text('sample', 'every packet'),
    edges: text('edges', 'everywhere'),
    between: text('between', 'any hosts'),
    filter: select([
      ['', 'every packet'],
      ['per_hop', 'per_hop: changes at a hop'],
      ['per_flow', 'per_flow: changes of a flow'],
      ['change', 'change: of path or bucket'],
      ['rule', 'rule: while the rule is true'],
    ]),
    metric: select(METRICS.filter((one) => one !== 'flow_path').map((one) => [one, one])),
    threshold: text('threshold', 'any change'),
    rule: text('rule', 'none'),
    then: text('then', 'nothing more'),
    thenMatch: select([
      ['this flow', 'this flow'],
      ['this path', 'this path (same hosts)'],
      ['this queue', 'this queue'],
    ]),
    thenFor: text('thenFor', '30s'),
    budget: text('budget', 'unlimited'),
    until: text('until', 'never'),
    priority: text('priority', '100'),
  } satisfies Record<TextKey, HTMLInputElement | HTMLSelectElement>;
}

function inputs() {
  const all = controls();
  const keys = Object.keys(all) as (keyof typeof all)[];
  const both = h('input', { type: 'checkbox' });
  const watch = METRICS.map((metric) => ({ metric, box: h('input', { type: 'checkbox' }) }));
  const complete = completion(all);
  const of = field('Of', all.metric);
  const by = field('By more than', all.threshold, 'as 20us');
  const thenMatch = field('Of', all.thenMatch);
  const thenFor = field('For', all.thenFor, 'as 30s');
  const compares = (): void => {
    for (const one of [of, by]) show(one, all.filter.value !== 'change' && all.filter.value !== 'rule');
    for (const one of [thenMatch, thenFor]) show(one, all.then.value.trim() !== '');
  };
  all.filter.addEventListener('change', compares);
  all.then.addEventListener('input', compares);
  const metrics = watch.map(({ metric, box }) => h('label', { class: 'check' }, box, metric));
  const group = (title: string, ...children: Child[]): HTMLElement =>
    h('fieldset', {}, h('legend', {}, title), h('div', { class: 'fields' }, ...children));
  const more = h(
    'details',
    { class: 'more' },
    h('summary', {}, 'Location, mode and reporting'),
    group(
      'Where',
      field('Edge devices', all.edges, 'as leaf*'),
      field('Between hosts', all.between, 'as h1, h8'),
    ),
    group('How', field('Mode', all.mode), field('Sample', all.sample, 'as 1 in 10')),
    group('Reports', field('Sinks report', all.filter), of, by, field('Budget', all.budget, 'reports/s')),
    group(
      'Events',
      field('Rule', all.rule, 'as max(queue_occupancy) > 50', 'wide'),
      field('If true, watch', all.then, 'metrics'),
      thenMatch,
      thenFor,
    ),
    group('Life', field('Until', all.until, 'as 2h'), field('Priority', all.priority, 'greatest decides')),
  );
  const rows = [
    field('Name', all.name, 'letters, digits, “.”, “_” and “-”'),
    group(
      'Flows',
      field('Source', all.src, 'as 10.0.0.0/8'),
      field('Destination', all.dst, 'as 10.0.0.1'),
      field('Source port', all.sport),
      field('Destination port', all.dport, 'as 443'),
      field('Protocol', all.proto, 'as tcp, udp'),
      h('label', { class: 'check' }, both, 'both directions'),
    ),
    group('Watch', ...metrics),
    more,
    complete.lists,
  ];
  return {
    rows,
    know: complete.know,
    focus: () => all.name.focus(),
    read: (): Draft => ({
      ...EMPTY,
      ...(Object.fromEntries(keys.map((key) => [key, all[key].value])) as Record<keyof typeof all, string>),
      both: both.checked,
      watch: watch.filter(({ box }) => box.checked).map(({ metric }) => metric),
    }),
    write(draft: Draft): void {
      for (const key of keys) all[key].value = draft[key];
      both.checked = draft.both;
      for (const { metric, box } of watch) box.checked = draft.watch.includes(metric);
      if (saysMore(draft)) more.open = true;
      compares();
    },
  };
}
