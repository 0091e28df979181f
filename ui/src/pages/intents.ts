import { ApiError, get, send } from '../api/client';
import type { Device, Devices, Domain, Intent, Intents, Plan } from '../api/manager';
import { poll, type Poll } from '../api/poll';
import { code, empty, h, panel, setText, show } from '../lib/dom';
import { count, dateTime, NONE } from '../lib/format';
import { LiveTable } from '../lib/table';
import { fromQuery, tone } from '../model/intents';
import { link, type Page, type Route } from '../router';
import { intentForm } from './intents-form';
import { domainMap } from './intents-map';

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
  private readonly detail = intentDetail((name) => void this.remove(name));
  private readonly map = domainMap();
  private readonly state = h('span', { class: 'muted', role: 'status' });
  private readonly stopping = h('button', { type: 'button' }, 'Stop all INT');
  private readonly form = intentForm({
    planned: (plan) => {
      this.plan = plan;
      this.draw();
    },
    added: (intent) => {
      this.name = intent.name;
      this.refresh();
    },
  });
  private readonly polls: Poll[];
  private intents: Intent[] = [];
  private devices: Device[] = [];
  private domain: Domain | null = null;
  private plan: Plan | null = null;

  private name: string;

  constructor(route: Route) {
    this.name = route.argument === 'new' ? '' : route.argument;
    this.table = intentTable(
      (intent) => intent.name === this.name,
      (intent) => (location.hash = link('intents', intent.name)),
    );
    this.stopping.addEventListener('click', () => void this.stopOrStart());
    const page = h(
      'div',
      { class: 'page intents' },
      panel(
        'Intents',
        { class: 'wide', aside: h('span', { class: 'bar' }, this.state, this.stopping) },
        this.table.element,
      ),
      this.form.element,
      h('div', { class: 'side' }, panel('Domain', {}, this.map.element), this.detail.element),
    );
    this.element = h('div', {}, page);
    if (route.argument === 'new') this.form.fill(fromQuery(route.query));
    this.polls = [
      poll<Intents>({
        intervalMs: 1000,
        request: (signal) => get('intents', {}, signal),
        show: ({ intents }) => {
          if (!page.isConnected) this.element.replaceChildren(page);
          this.intents = intents;
          this.draw();
        },
        failed: (error) => {
          if (error instanceof ApiError && error.status === 404) this.element.replaceChildren(noManager());
        },
      }),
      poll<[Devices, Domain]>({
        intervalMs: 1000,
        request: (signal) =>
          Promise.all([get<Devices>('devices', {}, signal), get<Domain>('domain', {}, signal)]),
        show: ([{ devices }, domain]) => {
          [this.devices, this.domain] = [devices, domain];
          this.draw();
        },
      }),
    ];
  }

  route(route: Route): void {
    if (route.argument === 'new') this.form.fill(fromQuery(route.query));
    else this.name = route.argument;
    this.draw();
  }

  stop(): void {
    for (const one of this.polls) one.stop();
  }

  private refresh(): void {
    for (const one of this.polls) one.now();
  }

  private draw(): void {
    this.table.update(this.intents);
    this.detail.update(this.intents.find((intent) => intent.name === this.name) ?? null, this.devices);
    this.map.update(this.devices, this.domain, this.plan);
    const { domain } = this;
    if (!domain) return;
    const acting = domain.acting ? '' : 'another manager acts; ';
    setText(this.state, `${acting}${domain.in_sync} of ${domain.devices} devices in sync`);
    setText(this.stopping, domain.stopped ? 'Start INT' : 'Stop all INT');
  }

  private async stopOrStart(): Promise<void> {
    const path = this.domain?.stopped ? 'domain/start' : 'domain/stop';
    await this.act(send<Domain>('POST', path));
  }

  private async remove(name: string): Promise<void> {
    await this.act(send<Intents>('DELETE', `intents/${encodeURIComponent(name)}`));
  }

  private async act(done: Promise<unknown>): Promise<void> {
    try {
      await done;
    } catch (error) {
      this.detail.say(error instanceof Error ? error.message : String(error));
    }
    this.refresh();
  }
}

function intentTable(
  selected: (intent: Intent) => boolean,
  select: (intent: Intent) => void,
): LiveTable<Intent> {
  return new LiveTable<Intent>({
    label: 'Intents',
    empty: 'Nothing is watched yet. Say below which flows shall be.',
    select,
    selected,
    columns: [
      { title: 'Intent', cell: (intent) => intent.name },
      { title: 'State', cell: (intent) => ({ text: intent.state, class: `state ${tone(intent.state)}` }) },
      { title: 'Mode', cell: (intent) => intent.mode ?? NONE },
      { title: 'Flows', numeric: true, cell: (intent) => count(intent.flows) },
      { title: 'Reports/s', numeric: true, cell: (intent) => count(Math.round(intent.rate)) },
      { title: 'Does it work?', class: 'grow', cell: (intent) => intent.text },
    ],
  });
}

/** One intent: what it is, on which devices, and how to remove it. */
function intentDetail(remove: (name: string) => void) {
  const facts = h('dl', { class: 'facts' });
  const button = h('button', { type: 'button' });
  const message = h('p', { class: 'answer bad', role: 'alert' });
  const title = h('b', {});
  const element = panel('Intent', { aside: button }, title, facts, message);
  let shown: Intent | null = null;
  let sure = false;

  function label(): void {
    setText(button, sure ? `Really remove ${shown?.name ?? ''}?` : 'Remove');
    show(button, shown !== null && shown.origin === 'api');
  }

  button.addEventListener('click', () => {
    if (shown && sure) remove(shown.name);
    sure = !sure;
    label();
  });
  return {
    element,
    say: (text: string) => setText(message, text),
    update(intent: Intent | null, devices: readonly Device[]): void {
      show(element, intent !== null);
      if (intent?.name !== shown?.name) {
        sure = false;
        setText(message, '');
      }
      shown = intent;
      label();
      if (!intent) return;
      setText(title, intent.name);
      const progress = intent.devices.map((name) => {
        const device = devices.find((one) => one.name === name);
        return `${name}${device && device.state !== 'in_sync' ? ` (${device.text})` : ''}`;
      });
      const rows: [string, string][] = [
        ['State', `${intent.state}: ${intent.text}`],
        ['Flows', flowsText(intent.intent)],
        ['Each node adds', intent.instructions ?? NONE],
        ['Devices', progress.join(', ') || NONE],
        ['Added', `${dateTime(intent.added)} by ${intent.by}`],
        ['Ends', intent.end === null ? 'never' : dateTime(intent.end)],
        ...intent.notes.map((note): [string, string] => ['Note', note]),
      ];
      const changed = rows.map(([, value]) => value).join('\n');
      if (facts.dataset['shown'] === changed) return;
      facts.dataset['shown'] = changed;
      facts.replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
    },
  };
}

function flowsText(intent: Record<string, unknown>): string {
  const match = (intent['match'] ?? {}) as Record<string, unknown>;
  if (typeof match === 'string') return match;
  const parts = Object.entries(match).map(([key, value]) => `${key} ${String(value)}`);
  return parts.join(', ') || 'all';
}
