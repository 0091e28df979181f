import { get, type Params } from '../api/client';
import { poll } from '../api/poll';
import type { Heat } from '../api/types';
import { HeatMap, heatLegend, type Cell } from '../charts/heat';
import { hands, sqlSpan } from '../hands';
import { empty, h, panel, setText, show } from '../lib/dom';
import { metricUnit, metricValue, plural, reasonOf } from '../lib/format';
import { heatSql, queryCommand } from '../model/copies';
import * as ofFleet from '../model/fleet-sql';
import { most, rowKey } from '../model/heat';
import { between, nanos } from '../model/range';
import { link, type Page, type Route } from '../router';
import { goTo, times } from '../times';
import { burstPanel } from './queues-burst';

const METRICS: readonly (readonly [string, string])[] = [
  ['queue_occupancy', 'Queue occupancy'],
  ['queue_congestion', 'Queue congestion'],
  ['hop_latency', 'Hop latency'],
  ['link_utilization', 'Link utilization'],
];
const ROWS = 40;
/** Pixels of a column. */
const COLUMN = 6;

interface Answer {
  asked: Params;
  heat: Heat;
}

interface Selection {
  metric: string;
  /** A queue (`node.queue` or `node.queue.interface`) and the time of a column, ms. */
  at: { key: string; from: number; to: number } | null;
}

/** How full each queue was over time, and who filled one of them. */
export function queuesPage(route: Route): Page {
  return new QueuesPage(route);
}

class QueuesPage implements Page {
  readonly element: HTMLElement;
  readonly followsRange = true;
  private readonly map: HeatMap;
  private readonly legend = heatLegend();
  private readonly note = h('span', { class: 'muted' });
  private readonly none = empty('Nothing measured', 'No values of queues, nodes or links in this time.');
  private readonly metric: HTMLSelectElement;
  private readonly burst = burstPanel(() => this.go({ ...this.selection, at: null }));
  private readonly polled;
  private selection: Selection;
  private heat: Heat | null = null;
  /** What was asked for `heat`: the number of columns depends on the width that the page had. */
  private asked: Params | null = null;

  constructor(route: Route) {
    this.selection = readSelection(route);
    this.map = new HeatMap({
      pick: (cell) => this.pick(cell),
      zoom: (from, to) => times.set(between(from / 1e6, to / 1e6)),
    });
    this.metric = h(
      'select',
      { aria: { label: 'Metric' } },
      ...METRICS.map(([value, label]) => h('option', { value }, label)),
    );
    this.metric.addEventListener('change', () =>
      this.go({ ...this.selection, metric: this.metric.value, at: null }),
    );
    this.element = h(
      'div',
      { class: 'page queues' },
      panel(
        'Queues over time',
        { class: 'wide', aside: this.legend.element, hands: this.copies() },
        h('div', { class: 'bar' }, this.metric),
        this.map.element,
        this.none,
        this.note,
      ),
      this.burst.element,
    );
    this.polled = poll<Answer>({
      intervalMs: () => times.intervalMs(5000),
      request: (signal) => this.request(signal),
      show: (answer) => this.show(answer),
      failed: (error) => setText(this.note, reasonOf(error)),
    });
    this.apply();
  }

  route(route: Route): void {
    this.selection = readSelection(route);
    this.apply();
    this.polled.now();
  }

  stop(): void {
    this.polled.stop();
    this.map.destroy();
    this.burst.stop();
  }

  private go(selection: Selection): void {
    goTo(link('queues', '', writeSelection(selection)));
  }

  private apply(): void {
    this.metric.value = this.selection.metric;
    const { at } = this.selection;
    if (at === null) return this.burst.clear();
    const [node = '', queue = '', port = ''] = at.key.split('.');
    this.burst.show({ node, queue, port, from: at.from, to: at.to });
  }

  private pick(cell: Cell): void {
    const at = { key: rowKey(cell.row), from: cell.from / 1e6, to: cell.to / 1e6 };
    this.go({ ...this.selection, at });
  }

  private copies(): HTMLElement {
    const sql = (): string | null => {
      const { heat } = this;
      return heat && heatSql(sqlSpan(heat), { ...heat, rows: ROWS });
    };
    return hands({
      title: 'Queues over time',
      asked: () => [{ path: 'queues', params: this.asked ?? this.params() }],
      sql,
      fleetSql: (fleet) => {
        const { heat } = this;
        return heat && ofFleet.heatSql(fleet, sqlSpan(heat), { ...heat, rows: ROWS });
      },
      command: () => {
        const text = sql();
        return text === null ? null : queryCommand(text);
      },
      sheet: () => this.map.sheet(),
    });
  }

  private params(): Params {
    const { from, to } = times.limits();
    const width = this.map.element.clientWidth || 1000;
    const columns = Math.max(20, Math.min(240, Math.floor((width * 0.82) / COLUMN)));
    const { metric } = this.selection;
    return { metric, from: nanos(from), to: nanos(to), columns, limit: ROWS };
  }

  private async request(signal: AbortSignal): Promise<Answer> {
    const asked = this.params();
    return { asked, heat: await get<Heat>('queues', asked, signal) };
  }

  private show({ asked, heat }: Answer): void {
    const { at } = this.selection;
    this.asked = asked;
    this.heat = heat;
    this.map.update(heat, at === null ? null : { key: at.key, from: at.from * 1e6 });
    const greatest = most(heat);
    const unit = heat.metric.startsWith('queue_') ? metricUnit(heat.metric) : '';
    this.legend.set(metricValue(heat.metric, greatest), unit);
    show(this.none, heat.rows.length === 0);
    show(this.map.element, heat.rows.length > 0);
    const left = heat.total - heat.rows.length;
    const rest = left > 0 ? ` ${plural(left, 'row')} with smaller values not shown.` : '';
    const truncated = heat.truncated ? ' There are more queues than the map can show.' : '';
    const help = 'Click a cell to see the flows in the queue; drag to zoom.';
    setText(
      this.note,
      `Each cell is the greatest value of ${heat.column / 1e9} s. ${help}${rest}${truncated}`,
    );
  }
}

function readSelection(route: Route): Selection {
  const { query } = route;
  const metric = METRICS.find(([name]) => name === query.get('metric'))?.[0] ?? 'queue_occupancy';
  const [key = '', from = '', to = ''] = (query.get('at') ?? '').split('/');
  const [start, end] = [Date.parse(from), Date.parse(to)];
  const at = /^\d+(\.\d+){0,2}$/.test(key) && start < end ? { key, from: start, to: end } : null;
  return { metric, at };
}

function writeSelection({ metric, at }: Selection): Record<string, string> {
  const time = (ms: number): string => new Date(ms).toISOString();
  return {
    ...(metric === 'queue_occupancy' ? {} : { metric }),
    ...(at === null ? {} : { at: `${at.key}/${time(at.from)}/${time(at.to)}` }),
  };
}
