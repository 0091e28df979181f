import { send } from '../api/client';
import type { Firing, RuleEnabled, Trial } from '../api/types';
import { hands } from '../hands';
import { h, panel, s, setText, show } from '../lib/dom';
import { dateTime, flowName, metricValue, NONE, reasonOf } from '../lib/format';
import { names } from '../lib/names';
import { LiveTable } from '../lib/table';
import { trialSheet, trialText } from '../model/alerts';
import { marked } from '../model/completion';
import { link } from '../router';
import { session } from '../session';
import { times } from '../times';
import type { AlertSettings } from './alerts';

/** Firings in the list. */
const LISTED = 50;
const WIDTH = 600;
const HEIGHT = 60;

/** What is sent to try a rule. */
interface TrialRequest {
  when: string;
  from: number;
  to: number;
}

/** A rule is written, tried on the past, and enabled. */
export function trialPanel(settings: AlertSettings) {
  const marks = h('div', { class: 'filter-marks', aria: { hidden: 'true' } });
  const when = h('input', {
    type: 'text',
    spellcheck: 'false',
    autocomplete: 'off',
    placeholder: 'max(queue_occupancy) > 50 and flow_latency > 5ms',
    aria: { label: 'Condition of a rule', describedby: 'trial-fault' },
  });
  const fault = h('p', { class: 'filter-fault', id: 'trial-fault', role: 'status' });
  const attempt = h('button', { type: 'submit' }, 'Try');
  const name = h('input', { type: 'text', placeholder: 'name', aria: { label: 'Name of the rule' } });
  const enable = h('button', { type: 'button' }, 'Enable');
  const answer = h('p', { class: 'trial-answer', role: 'status' });
  const chart = h('div', { class: 'trial-chart' });
  const firings = firingTable();
  const notes = h('ul', { class: 'notes' });
  const result = h('div', { class: 'trial-result', role: 'status' });
  const elsewhere = h(
    'p',
    { class: 'muted' },
    'Rules are evaluated by collectors: enable it on the page ',
    h('em', {}, 'Alerts'),
    ' of each one that receives reports of these flows, or add it to their configurations.',
  );
  const form = h(
    'form',
    { class: 'trial-form' },
    h('div', { class: 'filter-field' }, h('div', { class: 'filter-box' }, marks, when), fault),
    attempt,
    name,
    enable,
  );
  const menu = hands({
    title: 'Try a rule on this time',
    asked: () => (body === null ? [] : [{ path: 'alerts/try', body }]),
    sheet: () => (tried === null || body === null ? null : trialSheet(tried, body.when)),
    drawing: () => chart,
  });
  const element = panel(
    'Try a rule on this time',
    { class: 'wide', hands: menu },
    form,
    result,
    answer,
    chart,
    firings.element,
    notes,
    elsewhere,
  );
  show(elsewhere, session.console);
  for (const part of [name, enable]) show(part, !session.console);
  let asked = 0;
  let stopped = false;
  /** The latest request, and its answer if the rule was judged. */
  let body: TrialRequest | null = null;
  let tried: Trial | null = null;

  function clear(): void {
    [body, tried] = [null, null];
    show(menu, false);
    for (const part of [answer, chart, firings.element, notes, fault]) show(part, false);
  }

  function fill(trial: Trial, text: string): void {
    const [before, bad, after] = trial.fault === null ? ['', '', ''] : marked(text, trial.fault);
    marks.replaceChildren(before, bad === '' ? '' : h('mark', {}, bad), after);
    marks.scrollLeft = when.scrollLeft;
    setText(fault, trial.fault?.message ?? '');
    show(fault, trial.fault !== null);
    when.setAttribute('aria-invalid', String(trial.fault !== null));
    setText(answer, trialText(trial));
    const isJudged = trial.fault === null;
    tried = isJudged ? trial : null;
    show(menu, isJudged);
    for (const part of [answer, chart, notes]) show(part, isJudged);
    show(firings.element, isJudged && trial.firings.length > 0);
    if (!isJudged) return;
    chart.replaceChildren(
      bars(trial),
      h('p', { class: 'ticks muted' }, h('span', {}, clockOf(trial.from)), h('span', {}, clockOf(trial.to))),
    );
    firings.update(trial.firings.slice(0, LISTED));
    notes.replaceChildren(...[...trial.notes, ...unlisted(trial)].map((line) => h('li', {}, line)));
  }

  async function look(): Promise<void> {
    const mine = (asked += 1);
    const text = when.value.trim();
    show(result, false);
    if (text === '') return clear();
    const { from, to } = times.span();
    setText(answer, 'Reading …');
    show(answer, true);
    try {
      // The API reads whole numbers of any length.
      const wanted = { when: text, from: Number(from), to: Number(to) };
      const trial = await send<Trial>('POST', 'alerts/try', wanted);
      if (mine !== asked || stopped) return;
      body = wanted;
      // Positions of faults are those of the text that was sent.
      when.value = text;
      fill(trial, text);
    } catch (error) {
      if (mine !== asked || stopped) return;
      clear();
      setText(answer, reasonOf(error));
      show(answer, true);
    }
  }

  async function keep(): Promise<void> {
    enable.disabled = true;
    try {
      const body = { name: name.value.trim(), when: when.value.trim() };
      showResult(await send<RuleEnabled>('POST', 'alerts/rules', body));
    } catch (error) {
      result.replaceChildren(h('p', { class: 'filter-fault' }, reasonOf(error)));
    }
    show(result, true);
    enable.disabled = !session.mayOperate();
  }

  function showResult({ enabled, reason, text }: RuleEnabled): void {
    const said = enabled
      ? 'The rule is now active and was added to the configuration file:'
      : `Not enabled: ${reason ?? ''}. Add this to the configuration, and reload it:`;
    result.replaceChildren(h('p', {}, said), h('pre', {}, h('code', {}, text)));
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    settings.set({ when: when.value.trim() });
    void look();
  });
  when.addEventListener('input', () => {
    // What was found, or is being looked for, is about another condition.
    asked += 1;
    marks.replaceChildren();
    when.removeAttribute('aria-invalid');
    clear();
    settings.type({ when: when.value.trim() });
  });
  when.addEventListener('scroll', () => (marks.scrollLeft = when.scrollLeft));
  name.addEventListener('input', () => settings.type({ name: name.value.trim() }));
  enable.addEventListener('click', () => void keep());
  const unwatch = session.watch(() => {
    enable.disabled = !session.mayOperate();
    enable.title = session.reason();
  });
  const adopt = (): void => {
    // What is being typed is not replaced.
    if (document.activeElement !== when) when.value = settings.get('when');
    if (document.activeElement !== name) name.value = settings.get('name');
    void look();
  };
  clear();
  show(result, false);
  adopt();
  return {
    element,
    adopt,
    stop(): void {
      stopped = true;
      unwatch();
    },
  };
}

function unlisted({ times: count }: Trial): string[] {
  return count > LISTED ? [`The latest ${LISTED} of ${count} times are listed.`] : [];
}

function clockOf(ns: number): string {
  return dateTime(ns).slice(0, 19);
}

/** When it would have fired: a bar for each part of the time. */
function bars(trial: Trial): SVGElement {
  const { counts } = trial;
  const most = Math.max(1, ...counts);
  const width = WIDTH / counts.length;
  const rects = counts.flatMap((count, i) => {
    if (count === 0) return [];
    const height = Math.max(2, (count / most) * HEIGHT);
    const [x, y] = [i * width, HEIGHT - height].map((value) => value.toFixed(1));
    const from = trial.from + i * trial.column;
    const title = s('title', {}, `${clockOf(from)}: ${count}`);
    return [
      s(
        'rect',
        { x: x ?? 0, y: y ?? 0, width: Math.max(1.5, width - 0.5).toFixed(1), height: height.toFixed(1) },
        title,
      ),
    ];
  });
  const label = `Times that the rule would have become true, at most ${most} in ${trial.column / 1e9} s`;
  const attributes = {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': label,
  };
  return s('svg', attributes, s('line', { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }), ...rects);
}

function firingTable(): LiveTable<Firing> {
  return new LiveTable<Firing>({
    label: 'When it would have fired',
    empty: '',
    columns: [
      {
        title: 'When',
        cell: (one) => ({
          text: dateTime(one.ts),
          title: one.until === null ? 'until the end' : `until ${dateTime(one.until)}`,
        }),
      },
      {
        title: 'Flow',
        class: 'flow grow',
        cell: (one) => ({ text: flowName(one.flow), href: link('flow', one.text) }),
      },
      { title: 'Where', cell: (one) => (one.node === null ? NONE : names.node(one.node)) },
      { title: 'Value', numeric: true, cell: (one) => metricValue(one.metric, one.value) },
    ],
  });
}
