import type { HopLatencies } from '../api/types';
import { ClassMap } from '../charts/classes';
import { StackedChart } from '../charts/stacked';
import { hands } from '../hands';
import { h, panel, setText, show } from '../lib/dom';
import { duration, exact, percent, span } from '../lib/format';
import { LiveTable, type CellView, type Column } from '../lib/table';
import { live } from '../live';
import { hopRows, stackOf, type HopRow } from '../model/paths';

export interface LatencyOptions {
  /** A hop was chosen: its node, or `flow`. */
  choose(hop: string): void;
  chosen(): string;
}

/** How long each hop of a flow took: quantiles, distribution over time, and shares; beside it another flow or time. */
export function latencyPanel(options: LatencyOptions) {
  const map = new ClassMap();
  const other = new ClassMap();
  const stacked = new StackedChart(() => live.now(), 220);
  let comparing = false;
  const note = h('p', { class: 'table-note' });
  const legend = h('span', { class: 'legend' });
  const otherTitle = h('h3', {});
  const otherBox = h('div', {}, otherTitle, other.element);
  const mapTitle = h('h3', {});
  const table = new LiveTable<HopRow>({
    label: 'Latency of each hop',
    empty: 'No latency of this flow was reported in this time.',
    select: (row) => options.choose(keyOf(row)),
    selected: (row) => keyOf(row) === options.chosen(),
    columns: columns(() => comparing),
  });
  const charts = h('div', { class: 'beside' }, h('div', {}, mapTitle, map.element), otherBox);
  const element = panel(
    'Latency of each hop',
    { class: 'wide', hands: hands({ title: 'Latency of each hop', sheet: () => table.sheet() }) },
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
      const rows = hopRows(here, there);
      table.update(rows);
      const row = rows.find((one) => keyOf(one) === options.chosen()) ?? slowest(rows);
      setText(mapTitle, row ? `${row.label}: distribution over time` : '');
      map.update(here, row?.here ?? null, row?.label ?? '');
      show(otherBox, there !== null);
      setText(otherTitle, row ? `${row.label}, ${label}` : '');
      other.update(there, row?.there ?? null, row?.label ?? '');
      const shares = here ? stackOf(here) : null;
      if (shares) stacked.update(shares, []);
      legend.replaceChildren(...(shares?.labels ?? []).map(swatch));
      setText(note, noteText(here));
    },
    destroy(): void {
      map.destroy();
      other.destroy();
      stacked.destroy();
    },
  };
}

function swatch(label: string, i: number): HTMLElement {
  const colour = h('i', { class: 'swatch', style: `background:var(--series-${(i % 8) + 1})` });
  return h('span', {}, colour, label);
}

function keyOf(row: HopRow): string {
  return row.node === null ? 'flow' : String(row.node);
}

function slowest(rows: readonly HopRow[]): HopRow | undefined {
  const hops = rows.filter(({ node }) => node !== null);
  return [...hops].sort((a, b) => (b.here?.p99 ?? 0) - (a.here?.p99 ?? 0))[0] ?? rows[0];
}

type Quantile = 'p50' | 'p90' | 'p99' | 'max';

function columns(comparing: () => boolean): Column<HopRow>[] {
  const quantile = (name: Quantile): Column<HopRow> => ({
    title: name,
    numeric: true,
    cell: (row) =>
      comparing()
        ? compared(row.here?.[name] ?? null, row.there?.[name] ?? null)
        : duration(row.here?.[name] ?? null),
  });
  return [
    { title: 'Hop', cell: (row) => row.label },
    quantile('p50'),
    quantile('p90'),
    quantile('p99'),
    quantile('max'),
    {
      title: 'Share',
      hint: 'Of the sum of all hops’ means',
      numeric: true,
      class: 'grow',
      cell: (row) =>
        row.node === null || row.here === null ? '–' : { text: percent(row.share), bar: row.share },
    },
    {
      title: 'Values',
      hint: 'Stored values: changes larger than the threshold, and repeated ones',
      numeric: true,
      cell: (row) => exact(row.here?.values ?? null),
    },
  ];
}

/** A value, and what it is compared with. */
function compared(here: number | null, there: number | null): CellView {
  const difference = here === null || there === null || there === 0 ? null : (here - there) / there;
  const sign = (difference ?? 0) < 0 ? '−' : '+';
  const changed = difference === null ? '' : ` (${sign}${percent(Math.abs(difference))})`;
  const text = `${duration(here)} / ${duration(there)}${changed}`;
  return { text, title: 'This / what it is compared with' };
}

function noteText(here: HopLatencies | null): string {
  if (!here) return '';
  const time = here.hops[0]?.time ?? here.flow?.time ?? 0;
  const parts = [
    `Weighted by time: a value holds until the next one is reported, which is when it changes by more than the threshold, or until the flow is silent. Values are known for ${span(time / 1e9)}.`,
    'Solid: p50; long dashes: p90; short dashes: p99.',
  ];
  if (here.truncated) parts.push('There are more values than are read: the oldest are missing.');
  if (here.left_out > 0) parts.push(`${exact(here.left_out)} more nodes are not shown.`);
  return parts.join(' ');
}
