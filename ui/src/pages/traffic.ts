import { ApiError, get } from '../api/client';
import { poll } from '../api/poll';
import type { Traffic, TrafficRow } from '../api/types';
import { AreasChart, placeColour } from '../charts/areas';
import { SankeyChart } from '../charts/sankey';
import { hands } from '../hands';
import { empty, h, panel, setText, show } from '../lib/dom';
import { filterField } from '../lib/filter-field';
import { count, dateTime, exact, metricUnit, metricValue, reasonOf, span } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { LiveTable } from '../lib/table';
import {
  COLOURED,
  curves,
  DIMENSIONS,
  dimensionLabel,
  groupFilter,
  groupName,
  knownSeconds,
  measureOf,
  MEASURES,
  narrowed,
  remarks,
  sorted,
} from '../model/traffic';
import type { Page, Route } from '../router';
import { Settings } from '../settings';
import { times } from '../times';

/** What a person sets, by the names in the address. `by` is a list with commas. */
const DEFAULTS = {
  by: 'src',
  measure: 'reports',
  top: '8',
  draw: 'areas',
  filter: '',
  sort: 'count',
  prefix4: '24',
  prefix6: '64',
};
const TOPS = ['3', '5', '8', '15', '30', '100'];
const DRAWINGS: readonly (readonly [string, string])[] = [
  ['areas', 'Stacked areas'],
  ['lines', 'Lines'],
  ['sankey', 'Sankey'],
];
const LEVELS = 3;
const COLUMNS = 240;
const LIVE_MS = 10_000;
const HEIGHT = 260;

type Values = Settings<typeof DEFAULTS>;

/** Which traffic there was: what is reported, over time, by what is chosen. */
export function trafficPage(route: Route): Page {
  const settings = new Settings(route, DEFAULTS);
  const drawings = new Drawings((filter) => narrow(filter));
  const message = h('p', { class: 'table-note', role: 'status' });
  const note = h('p', { class: 'table-note' });
  const none = empty(
    'No matches',
    'No reports in this time, or the filter excludes all of them. Reports of flows are counted 35 s after the end of their minute, if they have a latency.',
  );
  const table = groupTable(settings, {
    order: () => answer && present(answer),
    pick: (filter) => narrow(filter),
  });
  let answer: Traffic | null = null;
  let field = makeField();
  const fieldBox = h('div', { class: 'traffic-filter' }, field.element);
  const controls = chooser(settings, () => changed());
  const reset = h('button', { type: 'button' }, 'Clear filter');
  reset.addEventListener('click', () => setFilter(''));

  function makeField() {
    return filterField({
      view: measureOf(settings.get('measure')).view,
      label: 'Filter of traffic',
      value: settings.get('filter'),
      changed(text) {
        settings.type({ filter: text });
        show(reset, text !== '');
        polled.now();
      },
    });
  }

  function changed(): void {
    // A filter of events has other fields than one of flows.
    field.stop();
    field = makeField();
    fieldBox.replaceChildren(field.element);
    controls.adopt();
    show(reset, settings.get('filter') !== '');
    polled.now();
  }

  function setFilter(text: string): void {
    settings.set({ filter: text });
    field.set(text);
    show(reset, text !== '');
    polled.now();
  }

  function narrow(filter: string): void {
    setFilter(narrowed(settings.get('filter'), filter));
  }

  function present(traffic: Traffic): void {
    answer = traffic;
    setText(message, '');
    const isEmpty = traffic.total.count === 0;
    show(none, isEmpty);
    drawings.update(traffic, isEmpty ? 'none' : settings.get('draw'));
    table.update(traffic, sorted(traffic, settings.get('sort')));
    const hint = settings.get('draw') === 'sankey' && traffic.by.length < 2;
    const sentences = [
      hint ? 'A Sankey diagram needs two or three dimensions: choose another one.' : '',
      unitText(traffic, settings.get('draw') === 'sankey'),
      ...remarks(traffic, (ns) => dateTime(ns).slice(0, 19)),
    ];
    setText(note, sentences.filter((one) => one !== '').join(' '));
  }

  const asked = () => [{ path: 'traffic', params: query(settings) }];
  const polled = poll<Traffic>({
    intervalMs: () => times.intervalMs(LIVE_MS),
    request: (signal) => get<Traffic>('traffic', query(settings), signal),
    show: present,
    failed(error) {
      setText(message, reasonOf(error));
      if (error instanceof ApiError) drawings.update(null, 'none');
    },
  });
  show(none, false);
  show(reset, settings.get('filter') !== '');
  return {
    element: h(
      'div',
      { class: 'page traffic' },
      panel(
        'Traffic',
        {
          class: 'wide',
          hands: hands({
            title: 'Traffic',
            asked,
            sheet: () => drawings.sheet(),
            drawing: () => drawings.element,
          }),
        },
        controls.element,
        h('div', { class: 'bar traffic-narrow' }, fieldBox, reset),
        message,
        drawings.element,
        none,
        note,
      ),
      panel(
        'Groups',
        { class: 'wide', hands: hands({ title: 'Groups', asked, sheet: () => table.sheet() }) },
        table.element,
      ),
    ),
    followsRange: true,
    route(next) {
      if (settings.adopt(next)) changed();
      else polled.now();
    },
    stop() {
      settings.stop();
      field.stop();
      polled.stop();
      drawings.destroy();
    },
  };
}

function query(settings: Values): Record<string, string | number> {
  return {
    ...times.span(),
    columns: COLUMNS,
    by: settings.get('by'),
    measure: settings.get('measure'),
    top: settings.get('top'),
    filter: settings.get('filter'),
    prefix4: settings.get('prefix4'),
    prefix6: settings.get('prefix6'),
  };
}

/** What a value is, and what it is not. */
function unitText(traffic: Traffic, isWhole: boolean): string {
  const column = isWhole ? 'in this time' : `per second, by ${span(traffic.column / 1e9)}`;
  if (traffic.measure === 'reports')
    return `Reports ${column}. Devices send reports about packets: with sampling or filters there are fewer reports than packets. Bytes are unknown.`;
  if (traffic.measure === 'events') return `Events ${column}.`;
  return `Mean of ${span(traffic.column / 1e9)}.`;
}

/** The drawing that is chosen; only that one is there. */
class Drawings {
  readonly element = h('div', { class: 'traffic-drawing' });
  private readonly areas = new AreasChart({
    label: 'Traffic over time',
    now: () => times.now() * 1e6,
    height: HEIGHT,
  });
  private readonly sankey: SankeyChart;
  private unit = '';

  constructor(pick: (filter: string) => void) {
    this.sankey = new SankeyChart(exact, pick);
    this.element.append(this.areas.element, this.sankey.element);
    this.update(null, 'none');
  }

  update(traffic: Traffic | null, drawing: string): void {
    const isSankey = drawing === 'sankey' && (traffic?.by.length ?? 0) > 1 && traffic?.counts === true;
    const isChart = !isSankey && drawing !== 'none';
    show(this.sankey.element, isSankey);
    show(this.areas.element, isChart);
    this.unit = traffic?.counts ? `${traffic.measure}/s` : metricUnit(traffic?.measure ?? null);
    if (traffic && isSankey) this.sankey.update(traffic);
    // A file has the values over time, whatever is drawn.
    if (traffic)
      this.areas.update(curves(traffic), traffic.counts && drawing !== 'lines', [
        formatOf(traffic.measure),
        traffic.counts ? `${traffic.measure}/s` : '',
      ]);
  }

  /** Values over time, for a file. */
  sheet(): Sheet | null {
    return this.areas.sheet(this.unit);
  }

  destroy(): void {
    this.areas.destroy();
    this.sankey.destroy();
  }
}

const FORMATS = new Map<string, (value: number) => string>();

/** How values of a measure are written; the same function each time, so that a chart knows that nothing changed. */
function formatOf(measure: string): (value: number) => string {
  const known = FORMATS.get(measure);
  if (known) return known;
  const isCount = measure === 'reports' || measure === 'events';
  const format = isCount ? count : (value: number): string => metricValue(measure, value);
  FORMATS.set(measure, format);
  return format;
}

/** Where measure, dimensions, number of groups and drawing are chosen. */
function chooser(settings: Values, changed: () => void) {
  const select = (label: string, options: readonly (readonly [string, string])[]): HTMLSelectElement =>
    h('select', { aria: { label } }, ...options.map(([value, text]) => h('option', { value }, text)));
  const measure = select(
    'Measure',
    MEASURES.map(({ name, label }) => [name, label] as const),
  );
  const levels = Array.from({ length: LEVELS }, (_, level) =>
    select(
      ['By', 'and by', 'and also by'][level] ?? '',
      level === 0 ? DIMENSIONS : [['', level === 1 ? '+ dimension' : '+ another'] as const, ...DIMENSIONS],
    ),
  );
  const top = select(
    'Groups',
    TOPS.map((number) => [number, `top ${number}`] as const),
  );
  const draw = select('Drawing', DRAWINGS);
  const prefix = (name: 'prefix4' | 'prefix6', most: number): HTMLInputElement => {
    const input = h('input', {
      type: 'number',
      class: 'short',
      aria: { label: `Length of IPv${name.slice(-1)} prefixes` },
    });
    [input.min, input.max] = ['0', String(most)];
    input.addEventListener('change', () => {
      const length = Math.round(Number(input.value));
      const isLength = input.value !== '' && length >= 0 && length <= most;
      settings.set({ [name]: isLength ? String(length) : DEFAULTS[name] });
      changed();
    });
    return input;
  };
  const [prefix4, prefix6] = [prefix('prefix4', 32), prefix('prefix6', 128)];
  const lengths = h('span', { class: 'traffic-prefix' }, 'IPv4 /', prefix4, ' IPv6 /', prefix6);

  measure.addEventListener('change', () => {
    const known = measureOf(measure.value).by;
    const kept = by().filter((name) => known.includes(name));
    settings.set({ measure: measure.value, by: kept.join(',') || (known[0] ?? DEFAULTS.by) });
    changed();
  });
  for (const level of levels)
    level.addEventListener('change', () => {
      const chosen = levels.map(({ value }) => value).filter((value) => value !== '');
      settings.set({ by: [...new Set(chosen)].join(',') });
      changed();
    });
  top.addEventListener('change', () => {
    settings.set({ top: top.value });
    changed();
  });
  draw.addEventListener('change', () => {
    settings.set({ draw: draw.value });
    changed();
  });
  const by = (): string[] => settings.get('by').split(',');

  function adopt(): void {
    const { by: known } = measureOf(settings.get('measure'));
    measure.value = measureOf(settings.get('measure')).name;
    levels.forEach((level, i) => {
      for (const option of level.options)
        option.disabled = option.value !== '' && !known.includes(option.value);
      level.value = by()[i] ?? '';
      show(level, i === 0 || by().length >= i);
    });
    top.value = settings.get('top');
    draw.value = settings.get('draw');
    [prefix4.value, prefix6.value] = [settings.get('prefix4'), settings.get('prefix6')];
    show(
      lengths,
      by().some((name) => name.endsWith('_prefix')),
    );
  }

  adopt();
  return {
    element: h('div', { class: 'bar traffic-controls' }, measure, ' by ', ...levels, lengths, top, draw),
    adopt,
  };
}

interface Shown {
  row: TrafficRow;
  traffic: Traffic;
}

function groupTable(settings: Values, on: { order(): void; pick(filter: string): void }) {
  let made: { measure: string; table: LiveTable<Shown> } | undefined;
  const element = h('div', {});
  return {
    element,
    sheet: (): Sheet | null => made?.table.sheet() ?? null,
    update(traffic: Traffic, rows: readonly TrafficRow[]): void {
      if (made?.measure !== traffic.measure) {
        made = { measure: traffic.measure, table: makeTable(traffic, settings, on) };
        element.replaceChildren(made.table.element);
      }
      const others = traffic.other_groups > 0 ? [traffic.others] : [];
      made.table.update([...rows, ...others, traffic.total].map((row) => ({ row, traffic })));
    },
  };
}

function makeTable(
  traffic: Traffic,
  settings: Values,
  on: { order(): void; pick(filter: string): void },
): LiveTable<Shown> {
  const counted = (title: string) => ({
    title,
    numeric: true,
    order: 'count',
    cell: ({ row }: Shown) => exact(row.count),
    file: { value: ({ row }: Shown) => row.count },
  });
  const numbers = traffic.counts
    ? [
        counted(traffic.measure === 'events' ? 'Events' : 'Reports'),
        {
          title: 'per second',
          numeric: true,
          cell: ({ row, traffic: of }: Shown) => count(row.count / knownSeconds(of)),
        },
        {
          title: 'Share',
          numeric: true,
          cell: ({ row, traffic: of }: Shown) => {
            const share = of.total.count > 0 ? row.count / of.total.count : 0;
            return { text: `${(100 * share).toFixed(1)} %`, bar: share };
          },
        },
      ]
    : [
        {
          title: 'Mean',
          numeric: true,
          order: 'mean',
          cell: ({ row }: Shown) => metricValue(traffic.measure, row.mean),
          file: { value: ({ row }: Shown) => row.mean, unit: metricUnit(traffic.measure) },
        },
        {
          title: 'Greatest',
          numeric: true,
          order: 'max',
          cell: ({ row }: Shown) => metricValue(traffic.measure, row.max),
          file: { value: ({ row }: Shown) => row.max, unit: metricUnit(traffic.measure) },
        },
        counted('Values'),
      ];
  return new LiveTable<Shown>({
    label: 'Groups',
    empty: 'No matches.',
    order: {
      get: () => settings.get('sort'),
      set(order) {
        settings.set({ sort: order });
        on.order();
      },
    },
    select({ row }) {
      const filter = groupFilter(row);
      if (filter !== null) on.pick(filter);
    },
    columns: [
      {
        title: '',
        class: 'swatch-cell',
        cell: ({ row, traffic: of }) => ({ text: '■', colour: rowColour(row, of) }),
      },
      {
        title: 'Group',
        class: 'grow',
        order: 'name',
        cell: ({ row, traffic: of }) => nameCell(row, of),
      },
      ...numbers,
    ],
  });
}

function nameCell(row: TrafficRow, traffic: Traffic): { text: string; title: string; class?: string } {
  if (row === traffic.total)
    return { text: 'Total', title: 'All matching data, each value counted once', class: 'muted' };
  if (row === traffic.others) {
    const number = `${exact(traffic.other_groups)}${traffic.truncated ? ' or more' : ''}`;
    return { text: `${number} others`, title: 'All other groups together', class: 'muted' };
  }
  const filter = groupFilter(row);
  const what = traffic.by.map(dimensionLabel).join(', ');
  return {
    text: groupName(traffic.by, row),
    title: filter === null ? `${what}: no filter selects it` : `${what}; click: ${filter}`,
  };
}

/** The colour that a row has in the chart. */
function rowColour(row: TrafficRow, traffic: Traffic): string {
  const place = traffic.groups.indexOf(row);
  if (row === traffic.total) return 'transparent';
  return placeColour(place < 0 || place >= COLOURED ? null : place);
}
