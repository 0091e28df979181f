import { dictionary } from '../lib/dictionary';
import type { Alert, Alerts, Trial } from '../api/types';
import { ago, dateTime, exact, metricAmount, metricValue, NONE, plural, span } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { metricLabel } from './events';
import { rowKey, rowName } from './heat';

/** How long alerts can be silenced. */
export const SILENCES: readonly { seconds: number; text: string }[] = [
  { seconds: 3_600, text: '1 h' },
  { seconds: 4 * 3_600, text: '4 h' },
  { seconds: 86_400, text: '1 day' },
  { seconds: 7 * 86_400, text: '1 week' },
];

/** How much of the time around its beginning a link shows, ms. */
const AROUND_MS = 120_000;
/** Around a queue: it fills within milliseconds. */
const QUEUE_MS = 5_000;

export function stateText(alert: Alert): string {
  if (alert.state !== 'firing') return 'resolved';
  if (alert.silence !== null) return 'silenced';
  return alert.acknowledged === null ? 'firing' : 'acknowledged';
}

/** The class of a state: only what nobody has looked at is red. */
export function stateTone(alert: Alert): string {
  return (
    { firing: 'bad', acknowledged: 'warn', silenced: 'muted', resolved: 'muted' }[stateText(alert)] ?? ''
  );
}

/** `80 > 50`: the value, and what it was compared with. */
export function valueText(alert: Alert): string {
  const { metric, value, threshold } = alert;
  if (value === null) return NONE;
  const sign = threshold === null ? '' : value > threshold ? ' > ' : value < threshold ? ' < ' : ' = ';
  if (threshold === null) return metricAmount(metric, value);
  return `${metricValue(metric, value)}${sign}${metricAmount(metric, threshold)}`;
}

/** Where the value was measured: `leaf1 interface eth2 queue 3`. */
export function placeText(place: Pick<Alert, 'node' | 'queue' | 'interface'>): string {
  return place.node === null ? NONE : rowName(place);
}

/** Duration of the latest occurrence, s; null: not stored. `end`: of what is known, ns. */
export function lasted({ state, since, until }: Alert, end: number): number | null {
  const last = state === 'firing' ? end : until;
  return since === null || last === null ? null : (last - since) / 1e9;
}

/** The same in words. */
export function sinceText(alert: Alert, end: number): string {
  if (alert.state === 'firing' && alert.since === null) return 'beginning not stored';
  const seconds = lasted(alert, end);
  return seconds === null ? NONE : span(seconds);
}

/** The time of the flow's latest report; a rule stays true until a report shows that it is false. */
export function reportText(alert: Alert, now: number): string {
  return alert.last_seen === null ? NONE : ago(alert.last_seen, now);
}

/** How many alerts fire only because no report has shown the opposite; empty: none. */
export function silentText({ firing, silent, silent_after_s }: Alerts): string {
  if (silent === 0) return '';
  const which = silent === firing ? (firing === 1 ? 'Its' : 'All of their') : `${exact(silent)} of their`;
  const flows = firing === 1 ? 'flow has' : 'flows have';
  const they = silent === 1 ? 'it fires' : 'they fire';
  return `${which} ${flows} sent no reports for ${silent_after_s} s or more: ${they} until a report shows that the rule is false, or the flow expires.`;
}

/** Until when an episode lasted whose end is not stored. `confirmed`: the collector says what is true now. */
export function openText(alert: Alert, confirmed: boolean): string {
  if (alert.state !== 'firing') return 'an unknown time';
  return confirmed ? 'now' : 'the end of this time';
}

/** By what it is known which alerts fire, if no collector was asked. */
export function storedText(isConsole: boolean): string {
  return isConsole
    ? 'As exported by the collectors, which have the current state, acknowledgements and silences.'
    : 'As stored at the end of this time.';
}

/** What there is to say without alerts. */
export function noneText(onlyFiring: boolean): { title: string; text: string } {
  return onlyFiring
    ? { title: 'No firing alerts', text: 'Ended alerts are hidden.' }
    : { title: 'No alerts', text: 'No rule was true in this time.' };
}

/** What the answer leaves out, in sentences; empty: nothing. */
export function cutText({ total, alerts, known_since }: Alerts): string {
  const parts: string[] = [];
  if (total > alerts.length) parts.push(`${exact(total - alerts.length)} more are not shown.`);
  if (known_since !== null)
    parts.push(
      `Too many rule events: alerts before ${dateTime(known_since).slice(0, 19)} are not listed or counted.`,
    );
  return parts.join(' ');
}

const ENDED = dictionary<string>({
  false: 'a report showed that the rule is no longer true',
  flow: 'the flow ended: no more reports arrived',
  stale: 'no end is stored: the collector was restarted, or the rule was removed',
});

export function endedText(alert: Alert): string {
  return alert.ended === null ? '' : (ENDED[alert.ended] ?? alert.ended);
}

/** What it compares: `Queue occupancy 80 > 50 at 101 interface 2 queue 0`. */
export function reasonText(alert: Alert): string {
  if (alert.metric === null) return '';
  const place = alert.node === null ? '' : ` at ${placeText(alert)}`;
  return `${metricLabel(alert.metric)} ${valueText(alert)}${place}`;
}

/** The time of the event that says most about it, ms. */
function moment(alert: Alert): number | null {
  const at = alert.since ?? alert.until;
  return at === null ? null : at / 1e6;
}

const iso = (ms: number): string => new Date(ms).toISOString();

/** Where an alert leads to: pages with the parameters of their addresses. */
export function linksOf(
  alert: Alert,
): { text: string; page: string; argument: string; query: Record<string, string> }[] {
  const at = moment(alert);
  const around = (ms: number): Record<string, string> =>
    at === null ? {} : { from: iso(at - ms), to: iso(at + ms) };
  const links: ReturnType<typeof linksOf> = [
    {
      text: 'The moment',
      page: 'events',
      argument: '',
      query: {
        ...around(AROUND_MS),
        ...(alert.text === null ? {} : { filter: isText('flow', alert.text) }),
      },
    },
  ];
  if (alert.text !== null)
    links.push({ text: 'The flow', page: 'flow', argument: alert.text, query: around(AROUND_MS) });
  if (alert.node !== null && at !== null) {
    const key = rowKey(alert);
    links.push({
      text: 'The queue',
      page: 'queues',
      argument: '',
      query: { ...around(AROUND_MS), ...cell(key, at - QUEUE_MS, at + QUEUE_MS) },
    });
    const { recorded } = alert;
    if (recorded !== null && recorded.since !== null && recorded.until !== null) {
      const [from, to] = [recorded.since / 1e6, recorded.until / 1e6];
      links.push({
        text: 'The recording',
        page: 'queues',
        argument: '',
        query: { ...around(AROUND_MS), ...cell(key, from, to) },
      });
    }
  }
  return links;
}

/** A cell of the heat map, as its page has it in its address. */
function cell(key: string, from: number, to: number): { at: string } {
  return { at: `${key}/${iso(from)}/${iso(to)}` };
}

/** A test of a filter. Its texts have no quotes in them: of one that has, the longest part without is searched. */
function isText(field: string, text: string): string {
  if (!text.includes('"')) return `${field} == "${text}"`;
  const [longest = ''] = text.split('"').sort((a, b) => b.length - a.length);
  return `${field} ~ "${longest}"`;
}

/** The filters of silences that fit an alert. */
export function silenceFilters(alert: Alert): { text: string; filter: string }[] {
  const rule = isText('rule', alert.rule);
  const filters = [{ text: 'this rule, all flows', filter: rule }];
  if (alert.text !== null)
    filters.unshift({ text: 'this alert', filter: `${rule} and ${isText('flow', alert.text)}` });
  if (alert.flow !== null && alert.text !== null)
    filters.push({ text: 'all rules, this flow', filter: isText('flow', alert.text) });
  return filters;
}

/** `It would have fired 12 times for 3 flows in this time.` */
export function trialText(trial: Trial): string {
  if (trial.fault !== null) return '';
  const most = trial.at_most && trial.times > 0 ? 'at most ' : '';
  const times = `${most}${trial.times === 1 ? 'once' : `${trial.times} times`}`;
  const flows = trial.times === 0 ? '' : ` for ${plural(trial.flows, 'flow')}`;
  const already =
    trial.already === 0 ? '' : ` It was already true for ${plural(trial.already, 'flow')} at the start.`;
  const head = trial.times === 0 ? 'It would not have fired' : `It would have fired ${times}${flows}`;
  const day = (ns: number): string => dateTime(ns).slice(0, 19);
  return `${head} from ${day(trial.from)} to ${day(trial.to)}.${already}`;
}

/** When a rule would have fired; what the trial does not know is said in the file, too. */
export function trialSheet(trial: Trial, when: string): Sheet {
  const { firings, times, notes } = trial;
  const listed = firings.length < times ? [`The latest ${firings.length} of ${times} times are listed.`] : [];
  const time = (name: string): Sheet['columns'][number] => ({ name, time: true });
  return {
    columns: [time('when'), time('until'), ...['flow', 'node', 'metric', 'value'].map((name) => ({ name }))],
    rows: firings.map((one) => [one.ts, one.until, one.text, one.node, one.metric, one.value]),
    cut: [`Rule: ${when}. ${trialText(trial)}`, ...listed, ...notes].join(' '),
  };
}
