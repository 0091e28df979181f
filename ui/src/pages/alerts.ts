import { get, send, type Params } from '../api/client';
import { poll } from '../api/poll';
import type { Alert, Alerts } from '../api/types';
import { h, panel, setText, show } from '../lib/dom';
import { hands } from '../hands';
import { ago, bothTimes, exact, flowName, metricUnit, plural, reasonOf } from '../lib/format';
import { LiveTable } from '../lib/table';
import { live } from '../live';
import {
  cutText,
  lasted,
  noneText,
  placeText,
  reportText,
  silentText,
  sinceText,
  stateText,
  stateTone,
  storedText,
  valueText,
} from '../model/alerts';
import type { Page, Route } from '../router';
import { session } from '../session';
import { Settings } from '../settings';
import { times } from '../times';
import { alertDetail } from './alerts-detail';
import { silencesPanel } from './alerts-silences';
import { trialPanel } from './alerts-trial';

const LIMIT = 500;
const DEFAULTS = { alert: '', state: '', when: '', name: '' };

export type AlertSettings = Settings<typeof DEFAULTS>;

/** What is wrong now, and what was wrong in the time that is shown; and rules that are tried. */
export function alertsPage(route: Route): Page {
  return new AlertsPage(route);
}

class AlertsPage implements Page {
  readonly element: HTMLElement;
  readonly followsRange = true;
  private readonly settings: AlertSettings;
  private readonly note = h('p', { class: 'muted', role: 'status' });
  private readonly table: LiveTable<Alert>;
  private readonly none = noAlert();
  private readonly only: HTMLInputElement;
  private readonly detail = alertDetail({
    change: (path, body) => this.change(path, body),
    close: () => this.select(''),
  });
  /** In a console there are none: they are at the collectors. */
  private readonly silences = session.console ? null : silencesPanel(() => this.polled.now());
  private readonly trial;
  private readonly polled;
  private answer: Alerts | null = null;

  constructor(route: Route) {
    this.settings = new Settings(route, DEFAULTS);
    this.table = alertTable(
      (alert) => this.select(alert.id),
      (alert) => alert.id === this.settings.get('alert'),
      // Nothing is known of what came after the time that is shown.
      () => Math.min(live.now(), this.answer?.to ?? Infinity),
    );
    this.only = h('input', { type: 'checkbox', id: 'only-firing' });
    this.only.checked = this.settings.get('state') === 'firing';
    this.only.addEventListener('change', () => {
      this.settings.set({ state: this.only.checked ? 'firing' : '' });
      this.polled.now();
    });
    this.trial = trialPanel(this.settings);
    const filter = h(
      'p',
      { class: 'check' },
      this.only,
      h('label', { for: 'only-firing' }, 'only firing alerts'),
    );
    this.element = h(
      'div',
      { class: 'page alerts' },
      panel(
        'Alerts',
        { class: 'wide', aside: filter, hands: this.copies() },
        this.note,
        this.table.element,
        this.none.element,
      ),
      this.detail.element,
      this.trial.element,
      this.silences?.element ?? null,
    );
    show(this.none.element, false);
    this.polled = poll<Alerts>({
      intervalMs: () => times.intervalMs(3000),
      request: (signal) => this.request(signal),
      show: (answer) => this.show(answer),
      failed: (error) => setText(this.note, reasonOf(error)),
    });
  }

  route(route: Route): void {
    this.settings.adopt(route);
    this.only.checked = this.settings.get('state') === 'firing';
    this.update();
    this.trial.adopt();
    this.polled.now();
  }

  stop(): void {
    this.settings.stop();
    this.polled.stop();
    this.detail.stop();
    this.silences?.stop();
    this.trial.stop();
  }

  private copies(): HTMLElement {
    return hands({
      title: 'Alerts',
      asked: () => [{ path: 'alerts', params: this.params() }],
      sheet: () => this.table.sheet(this.answer === null ? '' : cutText(this.answer)),
    });
  }

  private params(): Params {
    return { ...times.span(), state: this.settings.get('state'), limit: LIMIT };
  }

  private request(signal: AbortSignal): Promise<Alerts> {
    return get<Alerts>('alerts', this.params(), signal);
  }

  private show(answer: Alerts): void {
    this.answer = answer;
    this.none.say(noneText(this.onlyFiring()));
    show(this.none.element, answer.alerts.length === 0);
    show(this.table.element, answer.alerts.length > 0);
    setText(this.note, noteText(answer));
    this.update();
  }

  private update(): void {
    const alerts = this.answer?.alerts ?? [];
    this.table.update(alerts);
    const id = this.settings.get('alert');
    this.detail.show(id === '' ? null : (alerts.find((alert) => alert.id === id) ?? null), {
      isChosen: id !== '',
      onlyFiring: this.onlyFiring(),
      confirmed: this.answer?.confirmed ?? false,
    });
  }

  private onlyFiring(): boolean {
    return this.settings.get('state') === 'firing';
  }

  private select(id: string): void {
    this.settings.set({ alert: id });
    this.update();
    if (id !== '') this.detail.element.scrollIntoView({ block: 'nearest' });
  }

  private async change(path: string, body: unknown): Promise<void> {
    await send('POST', path, body);
    this.polled.now();
    this.silences?.now();
  }
}

function noteText(answer: Alerts): string {
  const { firing, unacknowledged } = answer;
  const head =
    firing === 0
      ? 'No firing alerts.'
      : `${plural(firing, 'alert')} fire${firing === 1 ? 's' : ''}${acknowledgedText(unacknowledged)}.`;
  const doubt = answer.confirmed || firing === 0 ? '' : storedText(session.console);
  return [head, silentText(answer), cutText(answer), doubt].filter((part) => part !== '').join(' ');
}

function acknowledgedText(unacknowledged: number): string {
  return session.console ? '' : `, ${exact(unacknowledged)} not acknowledged`;
}

/** Stands in place of the table while there is no alert. */
function noAlert() {
  const [title, text] = [h('strong'), h('p')];
  return {
    element: h('div', { class: 'empty' }, title, text),
    say(said: { title: string; text: string }): void {
      setText(title, said.title);
      setText(text, said.text);
    },
  };
}

/** `end`: of what is known, ns. */
function alertTable(
  select: (alert: Alert) => void,
  selected: (alert: Alert) => boolean,
  end: () => number,
): LiveTable<Alert> {
  return new LiveTable<Alert>({
    label: 'Alerts',
    empty: '',
    select,
    selected,
    also: [
      { name: 'Threshold', value: (alert) => alert.threshold },
      { name: 'Metric', value: (alert) => alert.metric },
      { name: 'Unit of both', value: (alert) => metricUnit(alert.metric) || null },
    ],
    columns: [
      { title: 'State', cell: (alert) => ({ text: stateText(alert), class: stateTone(alert) }) },
      { title: 'Rule', cell: (alert) => ({ text: alert.rule, title: alert.when ?? '' }) },
      {
        title: 'Flow',
        class: 'flow grow',
        cell: (alert) =>
          alert.flow === null ? '–' : { text: flowName(alert.flow), title: alert.text ?? '' },
        file: { value: (alert) => alert.text },
      },
      {
        title: 'Where',
        hint: 'The node, egress interface and queue with the value',
        cell: (alert) => placeText(alert),
      },
      {
        title: 'Value',
        numeric: true,
        hint: 'The comparison that made the rule true',
        cell: (alert) => valueText(alert),
        file: { value: (alert) => alert.value },
      },
      {
        title: 'Since',
        numeric: true,
        cell: (alert) => ({
          text: alert.since === null ? 'not stored' : ago(alert.since, live.now()),
          title: bothTimes(alert.since),
        }),
        file: { value: (alert) => alert.since, time: true },
      },
      {
        title: 'For',
        numeric: true,
        hint: 'Duration of the latest occurrence',
        cell: (alert) => sinceText(alert, end()),
        file: { value: (alert) => lasted(alert, end()), unit: 's' },
      },
      {
        title: 'Latest report',
        numeric: true,
        hint: 'Of the flow: a rule stays true until a report shows that it is false, or the flow expires',
        cell: (alert) => ({ text: reportText(alert, live.now()), title: bothTimes(alert.last_seen) }),
        file: { value: (alert) => alert.last_seen, time: true },
      },
      {
        title: 'Times',
        numeric: true,
        hint: 'Number of times it started firing in the selected time',
        cell: (alert) => exact(alert.count),
        file: { value: (alert) => alert.count },
      },
    ],
  });
}
