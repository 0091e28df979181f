import type { Cell, DropsOfPlace, LinkLoss, LossMap } from '../api/types';
import { dateTime, exact, percent, plural } from '../lib/format';
import { names, reasonName } from '../lib/names';
import type { Sheet } from '../lib/sheet';
import { bareLink, edgeId, type MapLink } from './topology';

/** Packets that a link lost or that were dropped before it, at least; null: not known. */
export function lostOf(link: LinkLoss): number | null {
  return link.lost === null && link.dropped === 0 ? null : (link.lost ?? 0) + link.dropped;
}

/** The links of the map with what they lost. A link that only the losses name is added. */
export function withLosses(links: readonly MapLink[], losses: LossMap | null): MapLink[] {
  if (!losses) return [...links];
  const lost = new Map(losses.links.map((link) => [edgeId(link.from, link.to), lostOf(link)] as const));
  const known = new Set(links.map(({ from, to }) => edgeId(from, to)));
  const missing = losses.links
    .filter(({ from, to }) => !known.has(edgeId(from, to)))
    .map(({ from, to }) => bareLink(from, to));
  return [...links, ...missing].map((link) => ({
    ...link,
    lost: lost.get(edgeId(link.from, link.to)) ?? null,
  }));
}

/** Packets by the node that reported their drop; null: no answer yet. */
export function droppedByNode(losses: LossMap | null): Map<number, number> | null {
  if (!losses) return null;
  const dropped = new Map<number, number>();
  for (const { node, packets } of losses.drops)
    if (node !== null) dropped.set(node, (dropped.get(node) ?? 0) + packets);
  return dropped;
}

/**
 * How a loss is known: `12 of 3 400 lost on it`, `3 to 12 of 3 400`, `not known, needs …`. `said` is what is needed for all
 * links, and is said once below.
 */
export function verdictOf(link: LinkLoss, said: string | null = null): string {
  const parts: string[] = [];
  if (link.dropped > 0) parts.push(`${plural(link.dropped, 'packet')} dropped before it (drop reports)`);
  if (link.lost !== null && link.lost_most !== null && link.sent !== null) {
    const of = `of ${exact(link.sent)}`;
    if (link.lost_most === 0) parts.push(`none ${of} lost on it (reports of both ends)`);
    else if (link.lost === link.lost_most)
      parts.push(
        `${exact(link.lost)} ${of} lost on it, ${percent(link.lost / Math.max(1, link.sent))} (reports of both ends)`,
      );
    else
      parts.push(
        `${exact(link.lost)} to ${exact(link.lost_most)} ${of} lost on it: lost or repeated reports hide the rest (reports of both ends)`,
      );
  } else if (link.unknown !== null)
    parts.push(link.unknown === said ? 'on it: unknown, see below' : `on it: unknown, ${link.unknown}`);
  return parts.join('; ');
}

/** `leaf1, to spine2, queue 3`; without the next node, the interface. */
export function placeText({ node, egress_if, to, queue }: DropsOfPlace): string {
  const parts = [node === null ? 'unknown node' : names.node(node)];
  if (to !== null) parts.push(`to ${names.node(to)}`);
  else if (egress_if !== null) parts.push(`interface ${names.interface(node, egress_if)}`);
  if (queue !== null) parts.push(`queue ${queue}`);
  return parts.join(', ');
}

export function reasonText({ reason, reason_name }: DropsOfPlace): string {
  if (reason_name) return reasonName(reason_name);
  return reason === null ? 'not given' : `code ${reason}`;
}

/** The sentence above the tables. */
export function summaryOf(losses: LossMap): string {
  const { unplaced } = losses;
  const [worst] = losses.links;
  const lost = worst ? (lostOf(worst) ?? 0) : 0;
  const elsewhere = `${plural(unplaced, 'packet')} dropped at no known link`;
  if (worst && lost > 0) {
    const link = `${names.node(worst.from)} → ${names.node(worst.to)}`;
    // Any of these may be of one link, which then lost more.
    const among = unplaced > lost ? `${elsewhere}. On known links, most` : 'Most packets';
    const rest = unplaced > 0 && unplaced <= lost ? ` ${elsewhere}.` : '';
    return `${among} were lost at the link ${link}: ${exact(lost)} at least.${rest}`;
  }
  if (unplaced > 0) return `${elsewhere}.`;
  return losses.counted
    ? 'No packet losses reported or counted in this time.'
    : 'No packet drops reported in this time. Losses on links were not counted.';
}

const plain = (columns: readonly string[]): Sheet['columns'] => columns.map((name) => ({ name }));

/** Links with what they lost, and by which evidence. `cut`: what is not in the file. */
export function linkSheet({ links }: LossMap, cut: string): Sheet {
  return {
    columns: plain(['from', 'to', 'dropped', 'sent', 'lost', 'lost_most', 'evidence']),
    rows: links.map((one) => [
      one.from,
      one.to,
      one.dropped,
      one.sent,
      one.lost,
      one.lost_most,
      verdictOf(one),
    ]),
    cut,
  };
}

/** Dropped packets by place and reason. */
export function dropSheet({ drops }: LossMap, cut: string): Sheet {
  const columns: Sheet['columns'] = [
    ...plain(['node', 'egress_if', 'to', 'queue', 'reason', 'reason_name', 'packets', 'flows']),
    ...['first', 'last'].map((name) => ({ name, time: true })),
    ...plain(['to_unknown']),
  ];
  const row = (one: DropsOfPlace): Cell[] => [
    one.node,
    one.egress_if,
    one.to,
    one.queue,
    one.reason,
    one.reason_name,
    one.packets,
    one.flows,
    one.first,
    one.last,
    one.to_unknown,
  ];
  return {
    columns,
    rows: drops.map(row),
    texts: drops.map((one) =>
      row(one).map((cell, at) => (columns[at]?.time ? dateTime(Number(cell)) : String(cell ?? ''))),
    ),
    cut,
  };
}

/** Lost reports by the node that sent them. */
export function reportSheet({ reporters }: LossMap, cut: string): Sheet {
  return {
    columns: plain(['node', 'lost_reports', 'repeated']),
    rows: reporters.map(({ node, lost, duplicated }) => [node, lost, duplicated]),
    cut,
  };
}
