import type { Status } from '../api/types';
import { h, s, setText } from '../lib/dom';
import { exact, percent } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { live } from '../live';
import { stageView, Steady, verdict, type StageView } from '../model/budget';

const ICONS = { ok: '✓', warn: '!', bad: '✕', idle: '·' } as const;

/** The loss budget: a summary sentence, and a flow diagram of the stages from the network to the store with their drops. */
export function budgetView() {
  const icon = h('span', { class: 'verdict-icon', aria: { hidden: 'true' } });
  const headline = h('strong');
  const detail = h('span', { class: 'muted' });
  const sentence = h('div', { class: 'verdict', role: 'status' }, icon, h('div', {}, headline, detail));
  const list = h('ol', { class: 'budget', aria: { label: 'Stages from the network to the store' } });
  const steady = new Steady();
  let stages: Stage[] = [];
  let shown: readonly StageView[] = [];
  return {
    element: h('div', {}, sentence, list),
    sheet: () => (shown.length === 0 ? null : budgetSheet(shown)),
    update(status: Status) {
      const views = status.loss_budget.map((raw) => steady.settle(stageView(raw)));
      const found = verdict(views, status.sources, {
        dropped: live.dropped.recent(),
        lost: live.lost.recent(),
        seconds: live.dropped.seconds(),
      });
      sentence.dataset['tone'] = found.tone;
      setText(icon, ICONS[found.tone]);
      shown = views;
      setText(headline, found.headline);
      setText(detail, found.detail);
      if (stages.length !== views.length) {
        stages = views.map(() => stage());
        list.replaceChildren(...stages.map(({ element }) => element));
      }
      let share = 1;
      views.forEach((view, i) => {
        stages[i]?.update(view, share);
        share *= passedShare(view);
      });
    },
  };
}

/** A row for each stage and each reason of its drops. */
function budgetSheet(views: readonly StageView[]): Sheet {
  const columns = ['stage', 'in', 'in unit', 'out', 'out unit', 'dropped', 'reason'];
  const rows = views.flatMap((view) => {
    const stage = [view.title, view.in, view.input, view.out, view.output];
    const drops = view.drops.length === 0 ? [{ reason: '', count: 0 }] : view.drops;
    return drops.map(({ reason, count }) => [...stage, count, reason]);
  });
  return { columns: columns.map((name) => ({ name })), rows };
}

/** Share of a stage's input that it did not drop. */
function passedShare(view: StageView): number {
  return view.in === 0 ? 1 : Math.max(0, 1 - view.dropped / view.in);
}

interface Stage {
  element: HTMLElement;
  update(view: StageView, share: number): void;
}

function stage(): Stage {
  const title = h('h3');
  const out = h('b', { class: 'out' });
  const outUnit = h('span', { class: 'muted' });
  const into = h('span', { class: 'muted in' });
  const drops = h('ul', { class: 'drops' });
  const pipe = h('div', { class: 'pipe', aria: { hidden: 'true' } });
  const body = h('div', { class: 'stage-body' }, h('div', { class: 'passed' }, out, outUnit), into, drops);
  const element = h('li', {}, title, pipe, body);
  return {
    element,
    update(view, share) {
      element.classList.toggle('drops', view.dropped > 0);
      element.title = view.hint;
      setText(title, view.title);
      setText(out, exact(view.out));
      setText(outUnit, plural(view.output, view.out));
      setText(into, `of ${exact(view.in)} ${plural(view.input, view.in)}`);
      drawBand(pipe, share, share * passedShare(view), view.dropped > 0);
      showDrops(drops, view);
    },
  };
}

function plural(word: string, number: number): string {
  return number === 1 ? word : `${word}s`;
}

function showDrops(list: HTMLElement, view: StageView): void {
  const lines = view.drops.map(({ reason, count }) => {
    return {
      class: 'drop',
      text: `−${exact(count)} ${reason.replaceAll('_', ' ')}`,
      note: percent(count / view.in),
      title:
        reason === 'lost'
          ? `Evidence: ${exact(view.evidence)} ${plural('datagram', view.evidence)} received`
          : '',
    };
  });
  if (lines.length === 0) lines.push({ class: 'none', text: 'nothing dropped', note: '', title: '' });
  if (view.queued > 0)
    lines.push({ class: 'waiting', text: `${exact(view.queued)} queued`, note: '', title: '' });
  if (view.unconfirmed > 0) {
    lines.push({
      class: 'waiting',
      text: `${exact(view.unconfirmed)} unconfirmed`,
      note: '',
      title: `Missing, but the ${exact(view.evidence)} datagrams received are not enough evidence: not counted as lost`,
    });
  }
  const key = JSON.stringify(lines);
  if (list.dataset['shown'] === key) return;
  list.dataset['shown'] = key;
  list.replaceChildren(
    ...lines.map((line) =>
      h(
        'li',
        { class: line.class, title: line.title },
        h('span', {}, line.text),
        h('span', { class: 'muted' }, line.note),
      ),
    ),
  );
}

const HEIGHT = 64;
const BAND = 34;

/** Draws a band whose height is the remaining share; a downward branch shows the drops, at least three pixels wide. */
function drawBand(box: HTMLElement, before: number, after: number, drops: boolean): void {
  const key = `${before.toFixed(4)} ${after.toFixed(4)} ${drops}`;
  if (box.dataset['shown'] === key) return;
  box.dataset['shown'] = key;
  const top = 4;
  const [left, right] = [before * BAND, after * BAND];
  const band = `M0 ${top} H100 V${top + right} H60 C45 ${top + right} 45 ${top + left} 30 ${top + left} H0 Z`;
  const shapes = [s('path', { d: band, class: 'band' })];
  if (drops) shapes.unshift(dropBranch(top + left, Math.max(3, left - right)));
  const drawing = s('svg', { viewBox: `0 0 100 ${HEIGHT}`, preserveAspectRatio: 'none' }, ...shapes);
  box.replaceChildren(drawing);
}

function dropBranch(bottom: number, thickness: number): SVGElement {
  const middle = bottom - thickness / 2;
  const line = `M20 ${middle} C48 ${middle} 50 ${middle} 50 ${HEIGHT}`;
  return s('path', { d: line, class: 'drop', 'stroke-width': thickness });
}
