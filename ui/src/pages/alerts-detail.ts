import type { Alert } from '../api/types';
import { atCollectors } from '../elsewhere';
import { h, panel, replace, setText, show } from '../lib/dom';
import { dateTime, exact, flowName, reasonOf } from '../lib/format';
import {
  endedText,
  linksOf,
  openText,
  reasonText,
  silenceFilters,
  SILENCES,
  stateText,
} from '../model/alerts';
import { link } from '../router';
import { session } from '../session';

const EPISODES = 12;

interface Options {
  change(path: string, body: unknown): Promise<void>;
  close(): void;
}

/** What else the page knows of the chosen alert. */
interface Around {
  isChosen: boolean;
  /** Only alerts that fire are listed. */
  onlyFiring: boolean;
  confirmed: boolean;
}

/** One alert: why, since when, where to look, and what can be said about it. */
export function alertDetail(options: Options) {
  const title = h('h3', {});
  const facts = h('dl', { class: 'facts' });
  const links = h('p', { class: 'bar' });
  const problem = h('p', { class: 'filter-fault', role: 'alert' });
  const comment = h('input', { type: 'text', aria: { label: 'Comment' }, placeholder: 'comment' });
  const acknowledge = h('button', { type: 'button', class: 'primary' }, 'Acknowledge');
  const seconds = h(
    'select',
    { aria: { label: 'How long' } },
    ...SILENCES.map((one) => h('option', { value: String(one.seconds) }, one.text)),
  );
  const which = h('select', { aria: { label: 'What to silence' } });
  const silence = h('button', { type: 'button' }, 'Silence');
  const actions = h('div', { class: 'bar' }, comment, acknowledge, which, seconds, silence);
  const gone = h('p', { class: 'muted' });
  // Notes are kept where the alert is evaluated.
  const elsewhere = h('p', { class: 'muted' });
  show(elsewhere, session.console);
  show(actions, !session.console);
  const closing = h('button', { type: 'button', on: { click: options.close } }, 'Close');
  const body = h('div', { class: 'alert-body' }, title, facts, links, actions, elsewhere);
  const element = panel('Selected alert', { class: 'wide', aside: closing }, gone, body, problem);
  let current: Alert | null = null;

  async function act(path: string, sent: unknown): Promise<void> {
    setText(problem, '');
    try {
      await options.change(path, sent);
      comment.value = '';
    } catch (error) {
      setText(problem, reasonOf(error));
    }
    show(problem, problem.textContent !== '');
  }

  acknowledge.addEventListener('click', () => {
    if (current === null) return;
    const acknowledged = current.acknowledged === null;
    void act('alerts/acknowledge', { id: current.id, comment: comment.value, acknowledged });
  });
  silence.addEventListener('click', () => {
    void act('alerts/silences', {
      filter: which.value,
      seconds: Number(seconds.value),
      comment: comment.value,
    });
  });
  const unwatch = session.watch(() => {
    for (const control of [acknowledge, silence, comment, which, seconds]) {
      control.disabled = !session.mayOperate();
      control.title = session.reason();
    }
  });
  show(element, false);
  show(problem, false);
  return {
    element,
    stop: unwatch,
    show(alert: Alert | null, { isChosen, onlyFiring, confirmed }: Around): void {
      show(element, isChosen);
      setText(
        gone,
        onlyFiring
          ? 'This alert is not firing: it is hidden, or outside the selected time.'
          : 'This alert is outside the selected time.',
      );
      show(gone, alert === null);
      show(body, alert !== null);
      const isOther = alert?.id !== current?.id;
      current = alert;
      if (alert === null) return;
      if (isOther) {
        show(problem, false);
        which.replaceChildren(
          ...silenceFilters(alert).map(({ text, filter }) => h('option', { value: filter }, text)),
        );
      }
      setText(title, `${alert.rule}${alert.flow === null ? '' : `: ${flowName(alert.flow)}`}`);
      const text = 'Acknowledge and silence it at ';
      elsewhere.replaceChildren(...atCollectors(text, alert.collectors ?? ['the collector of this flow']));
      setText(acknowledge, alert.acknowledged === null ? 'Acknowledge' : 'Take back');
      acknowledge.hidden = alert.state !== 'firing';
      replace(facts, factsOf(alert, confirmed), ([name, value]) => [h('dt', {}, name), h('dd', {}, value)]);
      const anchors = linksOf(alert).map(({ text, page, argument, query }) =>
        h('a', { class: 'button', href: link(page, argument, query) }, text),
      );
      // Kept while they are the same, so that a click is not lost to a refresh.
      const hrefs = (list: Iterable<Element>): string =>
        [...list]
          .map(
            (anchor) =>
              `${anchor.textContent} ${(anchor as HTMLElement).dataset['href'] ?? anchor.getAttribute('href')}`,
          )
          .join('\n');
      if (hrefs(links.children) !== hrefs(anchors)) links.replaceChildren(...anchors);
    },
  };
}

function factsOf(alert: Alert, confirmed: boolean): (readonly [string, string])[] {
  const { acknowledged } = alert;
  const when = (ns: number | null): string => (ns === null ? 'not stored' : dateTime(ns));
  const open = openText(alert, confirmed);
  const times = alert.episodes
    .slice(-EPISODES)
    .reverse()
    .map(({ since, until }) => `${when(since)} to ${until === null ? open : when(until)}`);
  const facts: [string, string | null][] = [
    ['state', stateText(alert)],
    ['condition', alert.when],
    ['because', reasonText(alert) || null],
    ['since', when(alert.since)],
    [
      'latest report',
      alert.last_seen === null
        ? null
        : `${when(alert.last_seen)}; the rule stays true until a report shows that it is false, or the flow expires`,
    ],
    [
      'ended',
      alert.ended === null
        ? null
        : `${alert.until === null ? '' : `${when(alert.until)}, `}${endedText(alert)}`,
    ],
    ['times', `${exact(alert.count)} in the selected time`],
    ['lasted', times.join('; ')],
    [
      'acknowledged',
      acknowledged === null
        ? null
        : `by ${acknowledged.by}, ${dateTime(acknowledged.at)}${acknowledged.comment === '' ? '' : `: ${acknowledged.comment}`}`,
    ],
    ['silence', alert.silence === null ? null : `number ${alert.silence}`],
  ];
  return facts.flatMap(([name, value]) => (value === null ? [] : [[name, value] as const]));
}
