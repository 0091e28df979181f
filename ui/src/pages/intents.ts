import { ApiError, get, send, Unreachable } from '../api/client';
import type { Device, Devices, Intent, Intents, Plan } from '../api/manager';
import type { Flow, FlowDetail } from '../api/types';
import { confirmButton } from '../lib/confirm';
import { code, empty, h, panel, replace, setText, show } from '../lib/dom';
import { bothTimes, count, dateTime, NONE, plural, reasonOf } from '../lib/format';
import { LiveTable } from '../lib/table';
import { apiOption, hands } from '../hands';
import { hopwise } from '../model/copies';
import { followManager, type Following } from '../manager';
import {
  deviceRows,
  drillDownRows,
  fromIntent,
  fromQuery,
  intentRows,
  stoppedText,
  tone,
  type Draft,
} from '../model/intents';
import { derive, isInQueue, passes, placeOf, type Place } from '../model/watch';
import { link, type Page, type Route } from '../router';
import { goTo } from '../times';
import { session } from '../session';
import { domainControl, readOnlyNote, restrict } from './domain';
import { intentForm } from './intents-form';
import { domainMap } from './intents-map';
import { waitingPlan } from './intents-waiting';

/** What is watched, whether it works, and a form for more. */
export function intentsPage(route: Route): Page {
  return new IntentsPage(route);
}

/** Shown when the program has no manager. */
export function noManager(): HTMLElement {
  return empty(
    'No manager',
    'A manager turns intents into rules on switches. Add ',
    code('[manager]'),
    ' and ',
    code('[[inventory.devices]]'),
    ' to the configuration of this program.',
  );
}

class IntentsPage implements Page {
  readonly element: HTMLElement;
  private readonly table: LiveTable<Intent>;
  private readonly detail = intentDetail({
    edit: (draft) => this.form.fill(draft),
    remove: (intent) => void this.remove(intent),
  });
  private readonly waiting = waitingPlan(() => this.manager.now());
  private readonly map = domainMap();
  private readonly state = h('span', { class: 'muted', role: 'status' });
  private readonly control = domainControl(() => this.manager.now());
  private readonly form = intentForm({
    planned: (plan) => {
      this.plan = plan;
      this.draw();
    },
    added: (intent) => {
      this.name = intent.name;
      this.manager.now();
    },
  });
  private readonly manager: Following;
  private plan: Plan | null = null;
  private name = '';

  constructor(route: Route) {
    this.table = intentTable(
      (intent) => intent.name === this.name,
      (intent) => goTo(link('intents', intent.name)),
    );
    const page = h(
      'div',
      { class: 'page intents' },
      panel(
        'Intents',
        {
          class: 'wide',
          aside: h('span', { class: 'bar' }, this.state, this.control.element),
          hands: hands({
            title: 'Intents',
            asked: () => [{ path: 'intents' }],
            command: () => hopwise('intent list', { api: apiOption() }),
            sheet: () => this.table.sheet(),
          }),
        },
        this.table.element,
      ),
      this.waiting.element,
      this.form.element,
      h('div', { class: 'side' }, panel('Domain', {}, this.map.element), this.detail.element),
    );
    this.element = h('div', {}, page);
    this.manager = followManager({
      show: () => {
        if (!page.isConnected) this.element.replaceChildren(page);
        this.draw();
      },
      none: () => this.element.replaceChildren(noManager()),
    });
    this.route(route);
  }

  route(route: Route): void {
    if (route.argument === 'new') void this.fill(route.query);
    else this.name = route.argument;
    this.draw();
  }

  stop(): void {
    this.manager.stop();
    this.control.stop();
    this.form.stop();
    this.detail.stop();
    this.waiting.stop();
  }

  /** Fills the form from a link “watch this”. */
  private async fill(query: URLSearchParams): Promise<void> {
    const place = placeOf(query);
    if (!place) return this.form.fill(derive(query, [], []));
    try {
      const [{ devices }, flows] = await Promise.all([get<Devices>('devices'), flowsAt(place)]);
      this.form.fill(derive(query, flows, devices));
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof Unreachable)) throw error;
      this.form.fill(fromQuery(query));
    }
  }

  private draw(): void {
    const { intents, devices, domain } = this.manager.known;
    this.table.update(intents);
    this.detail.update(intents.find((intent) => intent.name === this.name) ?? null, intents, devices);
    this.map.update(devices, domain, this.plan);
    this.form.know(devices, domain);
    this.control.update(domain);
    this.waiting.update(domain);
    if (!domain) return;
    const parts = [
      domain.acting ? '' : 'another manager is active',
      stoppedText(domain),
      `${domain.in_sync} of ${plural(domain.devices, 'device')} in sync`,
    ];
    setText(this.state, parts.filter((part) => part !== '').join('; '));
  }

  private async remove({ name, etag }: Intent): Promise<void> {
    try {
      await send<Intents>('DELETE', `intents/${encodeURIComponent(name)}`, undefined, { etag });
    } catch (error) {
      this.detail.say(reasonOf(error));
    }
    this.manager.now();
  }
}

/** Flows that are asked for their queues: each is a request. */
const MAX_DETAILS = 40;

/** The flows that pass a place. */
async function flowsAt(place: Place): Promise<Flow[]> {
  const { flows } = await get<{ flows: Flow[] }>('flows', { limit: 1_000 });
  const passing = flows.filter((flow) => passes(flow, place));
  if (place.queue === null && place.port === null) return passing;
  const inQueue = async (flow: Flow): Promise<boolean> => {
    try {
      const { hops } = await get<FlowDetail>(`flows/${encodeURIComponent(flow.id)}`);
      return isInQueue(hops, place);
    } catch {
      // It has expired meanwhile.
      return false;
    }
  };
  const asked = passing.slice(0, MAX_DETAILS);
  const is = await Promise.all(asked.map(inQueue));
  return asked.filter((_, index) => is[index]);
}

function intentTable(
  selected: (intent: Intent) => boolean,
  select: (intent: Intent) => void,
): LiveTable<Intent> {
  return new LiveTable<Intent>({
    label: 'Intents',
    empty: 'No intents yet. Add one below.',
    select,
    selected,
    columns: [
      { title: 'Intent', cell: (intent) => intent.name },
      { title: 'State', cell: (intent) => ({ text: intent.state, class: `state ${tone(intent.state)}` }) },
      { title: 'Mode', cell: (intent) => intent.mode ?? NONE },
      {
        title: 'Flows',
        numeric: true,
        file: { value: (intent) => intent.flows },
        cell: (intent) => count(intent.flows),
      },
      {
        title: 'Reports/s',
        numeric: true,
        file: { value: (intent) => intent.rate },
        cell: (intent) => count(Math.round(intent.rate)),
      },
      { title: 'Verification', class: 'grow', cell: (intent) => intent.text },
    ],
  });
}

/** One intent: what it is, what became of it on each device, and how to change or remove it. */
function intentDetail({ edit, remove }: { edit(draft: Draft): void; remove(intent: Intent): void }) {
  const facts = h('dl', { class: 'facts' });
  const progress = h('ul', { class: 'progress', aria: { label: 'Devices of this intent' } });
  const message = h('p', { class: 'answer bad', role: 'alert' });
  const state = h('p', { class: 'verified', role: 'status' });
  const title = h('b', {});
  const note = readOnlyNote();
  let shown: Intent | null = null;
  const button = confirmButton({
    label: () => 'Remove',
    question: () => `Remove ${shown?.name ?? ''}?`,
    act: () => shown && remove(shown),
  });
  const change = h('button', { type: 'button' }, 'Edit');
  change.addEventListener('click', () => {
    const draft = shown && fromIntent(shown);
    if (draft) edit(draft);
  });
  const element = panel(
    'Intent',
    { aside: h('span', { class: 'bar' }, change, button.element) },
    h('p', {}, title),
    state,
    progress,
    facts,
    message,
    note.element,
  );
  const ended = session.watch(() => restrict(button.element));
  return {
    element,
    say: (text: string) => setText(message, text),
    stop(): void {
      ended();
      note.stop();
    },
    update(intent: Intent | null, intents: readonly Intent[], devices: readonly Device[]): void {
      show(element, intent !== null);
      if (intent?.name !== shown?.name || intent?.etag !== shown?.etag) {
        button.disarm();
        setText(message, '');
      }
      shown = intent;
      button.update();
      show(button.element, intent !== null && intent.origin !== 'file');
      show(change, intent?.origin === 'api');
      if (!intent) return;
      change.disabled = fromIntent(intent) === null;
      change.title = change.disabled ? MORE_THAN_THE_FORM : '';
      setText(title, intent.name);
      // Figures change every second: they are not read aloud each time.
      state.setAttribute('aria-live', intent.state === state.dataset['state'] ? 'off' : 'polite');
      state.dataset['state'] = intent.state;
      state.className = `verified state ${tone(intent.state)}`;
      setText(state, `${intent.state}: ${intent.text}`);
      replace(progress, deviceRows(intent, devices), ({ text, name, tone }) =>
        h(
          'li',
          {},
          h('a', { href: link('devices', name) }, name),
          h('span', { class: `state ${tone}` }, text),
        ),
      );
      const rows: { name: string; text: string; to?: string; title?: string }[] = [
        ...intentRows(intent).map(([name, text]) => ({ name, text })),
        { name: 'Added', text: `${dateTime(intent.added)} by ${intent.by}`, title: bothTimes(intent.added) },
        {
          name: 'Ends',
          text: intent.end === null ? 'never' : dateTime(intent.end),
          title: bothTimes(intent.end),
        },
        ...drillDownRows(intent, intents),
        ...intent.rules.map((text) => ({ name: 'In force', text })),
        ...intent.notes.map((text) => ({ name: 'Note', text })),
        ...(intent.origin === 'file'
          ? [{ name: 'Origin', text: 'configuration file: change it there, and reload' }]
          : []),
      ];
      replace(facts, rows, ({ name, text, to, title = '' }) => [
        h('dt', {}, name),
        h(
          'dd',
          title === '' ? {} : { title },
          to === undefined ? text : h('a', { href: link('intents', to) }, text),
        ),
      ]);
    },
  };
}

const MORE_THAN_THE_FORM =
  'This intent has settings that the form does not support; change it with “hopwise intent add --replace”.';
