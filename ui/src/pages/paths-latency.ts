import type { HopLatencies } from '../api/types';
import { ClassMap } from '../charts/classes';
import { legendEntry, StackedChart } from '../charts/stacked';
import { hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { duration, exact, percent, span } from '../lib/format';
import { LiveTable, type CellView, type Column } from '../lib/table';
import { live } from '../live';
import { hopRows, NOT_ANSWERED, stackOf, type HopRow } from '../model/paths';
import type { Stack } from '../model/stack';

const NO_STACK: Stack = { labels: [], times: [], own: [], tops: [], total: [] };

interface LatencyOptions {
  /** A hop was chosen: its node, `?` if that is unknown, or `flow`. */
  choose(hop: string): void;
  chosen(): string;
}

/** How long each hop of a flow took: quantiles, distribution over time, and shares; beside it another flow or time. */
export function latencyPanel(options: LatencyOptions) {
  const map = new ClassMap();
  const other = new ClassMap();
  const stacked = new StackedChart(() => live.now(), 220);
  let comparing = false;
  let cut = '';
  const note = h('p', { class: 'table-note' });
  const legend = h('span', { class: 'legend' });
  const otherTitle = h('h3', {});
  const otherBox = h('div', {}, otherTitle, other.element);
  const mapTitle = h('h3', {});
  const table = new LiveTable<HopRow>({
    label: 'Latency of each hop',
    empty: NOT_ANSWERED,
    select: (row) => options.choose(row.key),
    selected: (row) => row.key === options.chosen(),
    columns: columns(() => comparing),
    also: QUANTILES.map((name) => ({
      name: `${name} of the comparison`,
      unit: 'ns',
      value: (row) => row.there?.[name] ?? null,
    })),
  });
  const charts = h('div', { class: 'beside' }, h('div', {}, mapTitle, map.element), otherBox);
  const element = panel(
    'Latency of each hop',
    { class: 'wide', hands: hands({ title: 'Latency of each hop', sheet: () => table.sheet(cut) }) },
    table.element,
    charts,
    h('h3', {}, 'Share of each hop: means, stacked'),
    legend,
    stacked.element,
    note,
  );

  return {
    element,
    update(here: HopLatencies | null, there: HopLatencies | null, label: string): void {
      comparing = there !== null;
      cut = here ? cutText(here) : '';
      const rows = hopRows(here, there);
      table.setEmpty(here ? 'No latency of this flow was reported in this time.' : NOT_ANSWERED);
      table.update(rows);
      const row = rows.find((one) => one.key === options.chosen()) ?? slowest(rows);
      setText(mapTitle, row ? `${row.label}: distribution over time` : '');
      map.update(here, row?.here ?? null, row?.label ?? '');
      show(otherBox, there !== null);
      setText(otherTitle, row ? `${row.label}, ${label}` : '');
      other.update(there, row?.there ?? null, row?.label ?? '');
      const shares = here ? stackOf(here) : null;
      stacked.update(shares ?? NO_STACK, []);
      legend.replaceChildren(...(shares?.labels ?? []).map(legendEntry));
      setText(note, noteText(here));
    },
    destroy(): void {
      map.destroy();
      other.destroy();
      stacked.destroy();
    },
  };
}

function slowest(rows: readonly HopRow[]): HopRow | undefined {
  const hops = rows.filter(({ key }) => key !== 'flow');
  return [...hops].sort((a, b) => (b.here?.p99 ?? 0) - (a.here?.p99 ?? 0))[0] ?? rows[0];
}

const QUANTILES = ['p50', 'p90', 'p99', 'max'] as const;
type Quantile = (typeof QUANTILES)[number];

function columns(comparing: () => boolean): Column<HopRow>[] {
  const quantile = (name: Quantile): Column<HopRow> => ({
    title: name,
    numeric: true,
    cell: (row) =>
      comparing()
        ? compared(row.here?.[name] ?? null, row.there?.[name] ?? null)
        : duration(row.here?.[name] ?? null),
    file: { value: (row) => row.here?.[name] ?? null, unit: 'ns' },
  });
  return [
    { title: 'Hop', cell: (row) => row.label },
    ...QUANTILES.map(quantile),
    {
      title: 'Share',
      hint: 'Of the sum of all hops’ means',
      numeric: true,
      class: 'grow',
      cell: (row) =>
        row.key === 'flow' || row.here === null ? '–' : { text: percent(row.share), bar: row.share },
      file: {
        value: (row) => (row.key === 'flow' || row.here === null ? null : row.share),
        unit: 'fraction',
      },
    },
    {
      title: 'Values',
      hint: 'Stored values: changes larger than the threshold, and repeated ones',
      numeric: true,
      cell: (row) => exact(row.here?.values ?? null),
      file: { value: (row) => row.here?.values ?? null },
    },
  ];
}

/** A value, and what it is compared with. */
function compared(here: number | null, there: number | null): CellView {
  const difference = here === null || there === null || there === 0 ? null : (here - there) / there;
  const sign = (difference ?? 0) < 0 ? '−' : '+';
  const changed = difference === null ? '' : ` (${sign}${percent(Math.abs(difference))})`;
  const text = `${duration(here)} / ${duration(there)}${changed}`;
  return { text, title: 'This / the comparison' };
}

function noteText(here: HopLatencies | null): string {
  if (!here) return '';
  const time = here.hops[0]?.time ?? here.flow?.time ?? 0;
  const parts = [
    `Weighted by time: a value holds until the next one is reported, which is when it changes by more than the threshold, or until the flow is silent. Values are known for ${span(time / 1e9)}.`,
    'Solid: p50; long dashes: p90; short dashes: p99.',
  ];
  return [...parts, cutText(here)].filter((part) => part !== '').join(' ');
}

/** What the answer leaves out; empty: nothing. */
function cutText(here: HopLatencies): string {
  const parts: string[] = [];
  if (here.truncated) parts.push('Too many values: the oldest are missing.');
  if (here.left_out > 0) parts.push(`${exact(here.left_out)} more nodes are not shown.`);
  return parts.join(' ');
}
