import { ApiError, get } from '../api/client';
import { poll, type Poll } from '../api/poll';
import type { DropsOfPlace, LinkLoss, LossMap, LostReports } from '../api/types';
import { hands } from '../hands';
import { atCollectors } from '../elsewhere';
import { h, panel, setText, show } from '../lib/dom';
import { exact, plural, reasonOf, timeWithin } from '../lib/format';
import { names } from '../lib/names';
import type { Sheet } from '../lib/sheet';
import { LiveTable } from '../lib/table';
import {
  dropSheet,
  linkSheet,
  placeText,
  reasonText,
  reportSheet,
  summaryOf,
  verdictOf,
} from '../model/losses';
import { link } from '../router';
import { session } from '../session';
import { times } from '../times';

const ROWS = 200;

/** Where is it lost? Links, drops with reasons, and lost reports apart, while the map shows losses. */
export function lossPanel(arrived: (losses: LossMap) => void) {
  const summary = h('p', { class: 'step-summary', role: 'status' });
  const note = h('p', { class: 'table-note' });
  const where = h('p', { class: 'table-note' });
  const named = Object.keys(session.collectors).sort();
  if (named.length > 0) where.append(...atCollectors('Collectors: ', named));
  show(where, named.length > 0);
  const links = new LiveTable<LinkLoss>({
    label: 'Losses by link',
    empty: 'No known links in this time.',
    columns: [
      {
        title: 'Link',
        cell: ({ from, to }) => ({
          text: `${names.node(from)} → ${names.node(to)}`,
          href: link('topology', `${from}>${to}`, { lens: 'loss' }),
        }),
      },
      { title: 'Dropped before the link', numeric: true, cell: ({ dropped }) => exact(dropped) },
      {
        title: 'Lost on the link',
        numeric: true,
        cell: ({ lost }) => (lost === null ? 'not known' : exact(lost)),
      },
      {
        title: 'Evidence',
        class: 'grow wraps',
        cell: (one) => verdictOf(one, answer?.uncounted ?? null),
      },
    ],
  });
  const drops = new LiveTable<DropsOfPlace>({
    label: 'Dropped packets, as nodes reported them',
    empty: 'No drop reports in this time. Drops of nodes that send no drop reports are not visible.',
    columns: [
      {
        title: 'Where',
        class: 'grow',
        cell: (one) => ({ text: placeText(one), title: one.to_unknown ?? '' }),
      },
      { title: 'Reason', cell: (one) => reasonText(one) },
      { title: 'Packets', numeric: true, cell: ({ packets }) => exact(packets) },
      { title: 'Flows', numeric: true, cell: ({ flows }) => exact(flows) },
      {
        title: 'From – until',
        cell: ({ first, last }) => [first, last].map((ts) => timeWithin(ts, times.length())).join(' – '),
      },
    ],
  });
  const reports = new LiveTable<LostReports>({
    label: 'Lost reports',
    empty: 'No reports lost in this time.',
    columns: [
      { title: 'Node', class: 'grow', cell: ({ node }) => (node === null ? 'unknown' : names.node(node)) },
      { title: 'Lost reports', numeric: true, cell: ({ lost }) => exact(lost) },
      { title: 'Repeated', numeric: true, cell: ({ duplicated }) => exact(duplicated) },
    ],
  });
  const element = panel(
    'Packet losses',
    {
      class: 'wide loss',
      hands: copies('Packet losses', (losses) => linkSheet(losses, cutOf(losses))),
    },
    summary,
    links.element,
    part('Dropped packets, as nodes reported them', 'Dropped packets', (losses) =>
      dropSheet(losses, cutOf(losses)),
    ),
    drops.element,
    part('Lost reports: not packets', 'Lost reports', (losses) =>
      reportSheet(losses, partText(losses.range)),
    ),
    reports.element,
    note,
    where,
  );
  show(element, false);
  let polled: Poll | null = null;
  let answer: LossMap | null = null;

  function copies(title: string, sheet: (losses: LossMap) => Sheet): HTMLElement {
    return hands({
      title,
      asked: () => [{ path: 'losses', params: times.span() }],
      sheet: () => (answer ? sheet(answer) : null),
    });
  }

  /** The head of a part of the panel. */
  function part(text: string, title: string, sheet: (losses: LossMap) => Sheet): HTMLElement {
    return h('div', { class: 'part-head' }, h('h3', {}, text), copies(title, sheet));
  }

  function start(): Poll {
    return poll<LossMap>({
      intervalMs: () => times.intervalMs(10_000),
      request: (signal) => get('losses', times.span(), signal),
      show(losses) {
        answer = losses;
        setText(summary, summaryOf(losses));
        links.update(losses.links.slice(0, ROWS));
        drops.update(losses.drops.slice(0, ROWS));
        reports.update(losses.reporters);
        const hidden = [losses.links, losses.drops].reduce(
          (sum, rows) => sum + Math.max(0, rows.length - ROWS),
          0,
        );
        setText(note, noteText(losses, losses.more + hidden));
        arrived(losses);
      },
      failed(error) {
        if (error instanceof ApiError || session.console) setText(summary, reasonOf(error));
      },
    });
  }

  return {
    element,
    /** Whether the map shows losses. */
    follow(on: boolean): void {
      show(element, on);
      if (on === (polled !== null)) return;
      polled?.stop();
      polled = on ? start() : null;
    },
    stop: () => polled?.stop(),
  };
}

/** `more`: rows that are not there. */
function noteText(losses: LossMap, more: number): string {
  const parts: string[] = [];
  if (losses.uncounted !== null) parts.push(`To count losses on links, hopwise ${losses.uncounted}.`);
  if (losses.left_out > 0)
    parts.push(
      `${plural(losses.left_out, 'flow')} not counted: the path changed in this time, passes a node twice, or is not known.`,
    );
  if (losses.counted_until !== null)
    parts.push(
      `Reports after ${timeWithin(losses.counted_until, times.length())} were not counted: there are too many; choose a shorter time.`,
    );
  if (more > 0) parts.push(`${plural(more, 'row')} more.`);
  parts.push(partText(losses.range));
  return parts.filter((part) => part !== '').join(' ');
}

/** What is not in the files of links and drops. */
function cutOf(losses: LossMap): string {
  return noteText(losses, losses.more);
}

function partText(range: LossMap['range']): string {
  return range?.truncated === true ? 'This time has more flows or locations than are considered.' : '';
}
