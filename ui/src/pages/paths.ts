import { ApiError, get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { HopLatencies, PathChange, PathChanges, PathUses } from '../api/types';
import { digits, hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { bothTimes, clock, exact, flowName, pathText, plural, timeWithin } from '../lib/format';
import { LiveTable } from '../lib/table';
import {
  changeText,
  drawnSheet,
  listedText,
  mainPath,
  NOT_ANSWERED,
  pathKey,
  readCompared,
  steps,
  type Compared,
  type Step,
} from '../model/paths';
import type { Asked } from '../model/copies';
import { nanos, partText, rangeText } from '../model/range';
import { link, type Page, type Route } from '../router';
import { Settings } from '../settings';
import { goTo, times } from '../times';
import { latencyPanel } from './paths-latency';
import { pathsMap, type Drawn } from './paths-map';
import { usesPanel } from './paths-use';

/** What a person sets, by the names in the address; the address also names the flow. */
const DEFAULTS = { src: '', dst: '', step: '', hop: '', compare: '' };
const MAX_CHANGES = 1_000;
const MAX_STEPS = 200;
const COLUMNS = 80;

interface Answer {
  uses: PathUses | null;
  latencies: HopLatencies | null;
  other: { uses: PathUses | null; latencies: HopLatencies | null } | null;
}

const NOTHING: Answer = { uses: null, latencies: null, other: null };

/** The paths of flows: before and after a change, how often each was used, there and back, and what each hop took. */
export function pathsPage(route: Route): Page {
  return new PathsPage(route);
}

class PathsPage implements Page {
  readonly element: HTMLElement;
  readonly followsRange = true;
  private readonly settings: Settings<typeof DEFAULTS>;
  private flow: string;
  /** Null: not answered yet. */
  private found: Step[] | null = null;
  /** What the list of changes leaves out. */
  private cut = '';
  private answer: Answer = NOTHING;
  private readonly map = pathsMap();
  private readonly uses = usesPanel();
  private readonly latency = latencyPanel({
    choose: (hop) => {
      this.settings.set({ hop });
      this.draw();
    },
    chosen: () => this.settings.get('hop'),
  });
  private readonly summary = h('p', { class: 'step-summary', role: 'status' });
  private readonly note = h('span', { class: 'muted' });
  private readonly trouble = h('p', { class: 'table-note', role: 'status' });
  /** What each request was refused with. */
  private readonly troubles = new Map<'changes' | 'details', string>();
  private readonly fields = this.makeFields();
  private readonly stepNote = h('p', { class: 'table-note' });
  private readonly flowNote = h('p', { class: 'table-note' });
  private readonly stepTable = this.makeSteps();
  private readonly flowTable = this.makeFlows();
  private readonly changes: Poll;
  private readonly details: Poll;

  constructor(route: Route) {
    this.settings = new Settings(route, DEFAULTS);
    this.flow = route.argument;
    this.element = this.build();
    this.fill();
    this.changes = poll<PathChanges>({
      intervalMs: () => times.intervalMs(5000),
      request: (signal) => get('paths/changes', this.params(), signal),
      show: (answer) => this.take(answer),
      failed: (error) => {
        this.say('changes', error);
        if (this.found === null) this.clearSteps();
      },
    });
    this.details = poll<Answer>({
      intervalMs: () => times.intervalMs(10_000),
      request: (signal) => this.request(signal),
      show: (answer) => {
        this.say('details', null);
        this.answer = answer;
        this.draw();
      },
      failed: (error) => this.say('details', error),
    });
  }

  route(route: Route): void {
    this.settings.adopt(route);
    this.flow = route.argument;
    this.found = null;
    this.say('changes', null);
    this.fill();
    this.changes.now();
    this.details.now();
    this.map.now();
  }

  stop(): void {
    this.settings.stop();
    this.changes.stop();
    this.details.stop();
    this.map.stop();
    this.latency.destroy();
  }

  private build(): HTMLElement {
    const move = (by: number): HTMLElement =>
      h(
        'button',
        { type: 'button', class: 'quiet', on: { click: () => this.move(by) } },
        by > 0 ? 'Earlier change' : 'Later change',
      );
    const aside = h('div', { class: 'bar' }, this.note, move(-1), move(1));
    return h(
      'div',
      { class: 'page paths' },
      panel('Flow or hosts', { class: 'wide' }, this.fields.element, this.trouble),
      panel(
        'Path changes',
        { aside, hands: this.copies() },
        this.stepTable.element,
        this.stepNote,
        this.flowTable.element,
        this.flowNote,
      ),
      panel(
        'Before and after',
        { class: 'paths-panel', hands: this.drawnCopies() },
        this.summary,
        this.map.element,
      ),
      this.uses.element,
      this.latency.element,
    );
  }

  private params(): Record<string, string | number> {
    return { ...times.span(), ...this.which(), limit: MAX_CHANGES };
  }

  /** The requests of what is shown of the present time. */
  private asked(): Asked[] {
    const uses = { path: 'paths/uses', params: { ...times.span(), ...this.which() } };
    return [{ path: 'paths/changes', params: this.params() }, ...(this.isChosen() ? [uses] : [])];
  }

  private drawnCopies(): HTMLElement {
    const asked = (): Asked[] => {
      const compared = this.compared();
      if (compared === null || !this.isChosen()) return this.asked();
      return [...this.asked(), { path: 'paths/uses', params: this.otherParams(compared, times.limits()) }];
    };
    const sheet = () => {
      const { before, after } = this.drawn(this.step());
      return drawnSheet([before, after]);
    };
    return hands({ title: 'Before and after', asked, sheet });
  }

  private copies(): HTMLElement {
    return hands({
      title: 'Path changes',
      asked: () => this.asked(),
      sheet: () => ({
        columns: ['time', 'flow', 'before', 'after'].map((name) => ({ name, time: name === 'time' })),
        rows: (this.found ?? []).flatMap(({ flows }) =>
          flows.map((one) => [digits(one.ts), one.text, pathKey(one.before), pathKey(one.after)]),
        ),
        cut: this.cut,
      }),
    });
  }

  private makeFields() {
    const field = (label: string, placeholder: string): HTMLInputElement =>
      h('input', { type: 'text', placeholder, spellcheck: 'false', autocomplete: 'off', aria: { label } });
    const flow = field('Flow', '10.0.0.1:5000>10.0.0.2:80/17');
    const src = field('From host', '10.0.0.1');
    const dst = field('To host', '10.0.0.2');
    const compare = field('Compare with', 'a flow, or two times: from/to');
    const choose = h('button', { type: 'submit', class: 'primary' }, 'Show');
    const before = h(
      'button',
      { type: 'button', on: { click: () => this.compare('previous') } },
      'with the time before',
    );
    const none = h(
      'button',
      { type: 'button', class: 'quiet', on: { click: () => goTo(link('paths')) } },
      'All flows',
    );
    const part = (text: string, input: HTMLElement): HTMLElement =>
      h('label', {}, h('span', {}, text), input);
    const form = h(
      'form',
      { class: 'bar path-fields' },
      part('Flow', flow),
      part('or from', src),
      part('to', dst),
      part('Compare', compare),
      choose,
      before,
      none,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const values = { src: src.value.trim(), dst: dst.value.trim(), compare: compare.value.trim() };
      const wanted = Object.entries(values).filter(([, value]) => value !== '');
      goTo(link('paths', flow.value.trim(), Object.fromEntries(wanted)));
    });
    return { element: form, flow, src, dst, compare };
  }

  private makeSteps(): LiveTable<Step> {
    return new LiveTable<Step>({
      label: 'Path changes, newest first',
      empty: NOT_ANSWERED,
      select: (step) => this.choose(step),
      selected: (step) => step.key === this.step()?.key,
      columns: [
        {
          title: 'Time',
          cell: ({ first }) => ({ text: changeTime(first), title: bothTimes(first) }),
        },
        { title: 'Flows', numeric: true, cell: ({ flows }) => exact(flows.length) },
        {
          title: 'Changed',
          class: 'grow two-lines',
          cell: ({ before, after }) => ({
            text: `${changeText(before, after)}\n${pathText([...before])} → ${pathText([...after])}`,
          }),
        },
      ],
    });
  }

  private makeFlows(): LiveTable<PathChange> {
    return new LiveTable<PathChange>({
      label: 'Flows of this change',
      empty: '',
      columns: [
        {
          title: 'Flows of this change',
          class: 'grow',
          cell: (change) => ({
            text: flowName(change.flow),
            title: change.text,
            href: link('paths', change.text, { step: this.step()?.key ?? '' }),
          }),
        },
        { title: 'Time', numeric: true, cell: ({ ts }) => ({ text: exactTime(ts), title: bothTimes(ts) }) },
      ],
    });
  }

  private fill(): void {
    const { flow, src, dst, compare } = this.fields;
    flow.value = this.flow;
    [src.value, dst.value] = [this.settings.get('src'), this.settings.get('dst')];
    compare.value = this.settings.get('compare');
    this.say('details', null);
    this.answer = NOTHING;
    this.draw();
  }

  private which(): Record<string, string> {
    const named = { flow: this.flow, src: this.settings.get('src'), dst: this.settings.get('dst') };
    return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== ''));
  }

  private isChosen(): boolean {
    return Object.keys(this.which()).length > 0;
  }

  private async request(signal: AbortSignal): Promise<Answer> {
    if (!this.isChosen()) return NOTHING;
    const limits = times.limits();
    const compared = this.compared();
    const [uses, latencies, other] = await Promise.all([
      get<PathUses>('paths/uses', { ...span(limits), ...this.which() }, signal),
      this.flow === '' ? null : latenciesOf(this.flow, limits, signal),
      compared === null ? null : this.requestOther(compared, limits, signal),
    ]);
    return { uses, latencies, other };
  }

  private async requestOther(
    compared: Compared,
    limits: Limits,
    signal: AbortSignal,
  ): Promise<NonNullable<Answer['other']>> {
    const isFlow = 'flow' in compared;
    const within = isFlow ? limits : compared.range;
    const flow = isFlow ? compared.flow : this.flow;
    const [uses, latencies] = await Promise.all([
      get<PathUses>('paths/uses', this.otherParams(compared, limits), signal),
      flow === '' ? null : latenciesOf(flow, within, signal),
    ]);
    return { uses, latencies };
  }

  /** The paths that the chosen ones are compared with. */
  private otherParams(compared: Compared, limits: Limits): Record<string, string> {
    return 'flow' in compared
      ? { ...span(limits), flow: compared.flow }
      : { ...span(compared.range), ...this.which() };
  }

  private compared(): Compared | null {
    return readCompared(this.settings.get('compare'), times.limits());
  }

  private compare(text: string): void {
    this.settings.set({ compare: text });
    this.fill();
    this.details.now();
  }

  private take(answer: PathChanges): void {
    this.say('changes', null);
    this.found = steps(answer.changes);
    const rest = answer.total - answer.changes.length;
    const more =
      rest > 0
        ? `the latest ${exact(answer.changes.length)} of ${plural(answer.total, 'change')}`
        : plural(answer.total, 'change');
    const part = partText(answer);
    const joined = (texts: string[]): string => texts.filter((text) => text !== '').join('. ');
    setText(this.note, joined([more, part]));
    this.cut = joined([rest > 0 ? more : '', part]);
    this.stepTable.setEmpty('No path changed in this time.');
    this.draw();
  }

  /** Says what is wrong with a request; null: nothing any more. */
  private say(which: 'changes' | 'details', error: unknown): void {
    if (error === null) this.troubles.delete(which);
    else if (error instanceof ApiError) this.troubles.set(which, error.message);
    setText(this.trouble, [...new Set(this.troubles.values())].join('; '));
  }

  /** The changes were not answered: those of another flow or time are no answer. */
  private clearSteps(): void {
    this.cut = '';
    setText(this.note, '');
    setText(this.summary, '');
    this.stepTable.setEmpty(NOT_ANSWERED);
    this.stepTable.update([]);
    this.flowTable.update([]);
    show(this.flowTable.element, false);
    for (const note of [this.stepNote, this.flowNote]) setText(note, '');
    this.map.show(null, null);
  }

  /** The chosen step; the newest one while none is chosen and no flow or host is. */
  private step(): Step | null {
    const key = this.settings.get('step');
    const found = this.found ?? [];
    const chosen = found.find((step) => step.key === key);
    if (chosen) return chosen;
    const ends = key.slice(key.indexOf('/'));
    const time = Number(key.slice(0, key.indexOf('/')));
    // Of one flow alone, the same change may begin later.
    const near = found.find((step) => step.key.endsWith(ends) && Math.abs(step.first / 1e6 - time) < 60_000);
    return key === '' ? (found[0] ?? null) : (near ?? null);
  }

  private choose(step: Step): void {
    this.settings.set({ step: step.key });
    this.draw();
  }

  private move(by: number): void {
    const found = this.found ?? [];
    const at = found.findIndex(({ key }) => key === this.step()?.key);
    const next = found[Math.min(found.length - 1, Math.max(0, at + by))];
    if (next) this.choose(next);
  }

  private draw(): void {
    const { uses, latencies, other } = this.answer;
    // What is not answered yet stays as it is: it is neither a change nor none.
    if (this.found !== null) this.drawSteps(this.found);
    if (this.found !== null || other !== null) {
      const step = this.step();
      setText(this.summary, this.summaryText(step));
      const { before, after } = this.drawn(step);
      this.map.show(before, after);
    }
    show(this.uses.element, this.isChosen());
    show(this.latency.element, this.flow !== '');
    const label = comparedLabel(this.compared());
    this.uses.update(uses, other?.uses ?? null, label);
    this.latency.update(latencies, other?.latencies ?? null, label);
  }

  private drawSteps(found: readonly Step[]): void {
    const step = this.step();
    this.stepTable.update(found.slice(0, MAX_STEPS));
    const flows = step?.flows ?? [];
    this.flowTable.update(flows.slice(0, MAX_STEPS));
    const hasFlows = step !== null && this.flow === '';
    show(this.flowTable.element, hasFlows);
    setText(this.stepNote, listedText(MAX_STEPS, found.length, 'Of these changes, the newest steps:'));
    setText(this.flowNote, hasFlows ? listedText(MAX_STEPS, flows.length, 'Flows of this change:') : '');
  }

  private summaryText(step: Step | null): string {
    if (this.answer.other) return `Compared with ${comparedLabel(this.compared())}: the paths used longest.`;
    if (step) return summaryOf(step);
    if (this.found !== null && this.found.length > 0) return 'The selected change is outside this time.';
    return this.isChosen()
      ? 'No path changed in this time, in either direction.'
      : 'No path changed in this time.';
  }

  /** The paths on the map: of the change; without one, what is compared, or there and back. */
  private drawn(step: Step | null): { before: Drawn | null; after: Drawn | null } {
    const { uses, other } = this.answer;
    if (other?.uses && uses) {
      const label = comparedLabel(this.compared());
      return {
        before: drawnPath(mainPath(other.uses.forward), label),
        after: drawnPath(mainPath(uses.forward), 'this'),
      };
    }
    if (step) return { before: drawnPath(step.before, 'before'), after: drawnPath(step.after, 'after') };
    if (!uses) return { before: null, after: null };
    const back = uses.reverse ? mainPath(uses.reverse) : null;
    return { before: drawnPath(back, 'back'), after: drawnPath(mainPath(uses.forward), 'there') };
  }
}

interface Limits {
  from: number;
  to: number;
}

function span({ from, to }: Limits): Record<string, string> {
  return { from: nanos(from), to: nanos(to) };
}

/** A flow without any report in this time has no latencies, which the table says. */
async function latenciesOf(flow: string, limits: Limits, signal: AbortSignal): Promise<HopLatencies | null> {
  const path = `flows/${encodeURIComponent(flow)}/latencies`;
  return get<HopLatencies>(path, { ...span(limits), columns: COLUMNS }, signal);
}

function drawnPath(path: Drawn['path'] | null, label: string): Drawn | null {
  return path === null || path.length === 0 ? null : { path, label };
}

function summaryOf(step: Step): string {
  const { first, last, before, after, flows } = step;
  const until = last - first > 1e6 ? ` to ${clock(last)}` : '';
  const what = changeText(before, after);
  return `${plural(flows.length, 'flow')} changed path at ${exactTime(first)}${until}: ${what}.`;
}

/** To a tenth of a second; with its day in a long time. */
function changeTime(ts: number): string {
  return `${timeWithin(ts, times.length())}${clock(ts).slice(8, 10)}`;
}

function exactTime(ts: number): string {
  return `${timeWithin(ts, times.length())}${clock(ts).slice(8)}`;
}

function comparedLabel(compared: Compared | null): string {
  if (compared === null) return '';
  return 'flow' in compared ? compared.flow : rangeText(compared.range, times.now());
}
