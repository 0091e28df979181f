import uPlot from 'uplot';
import { h } from '../lib/dom';
import { duration, pathText } from '../lib/format';
import { seriesSheet, type Sheet } from '../lib/sheet';
import { colour, faded, seriesColour } from '../lib/theme';
import type { PathChange, Stack } from '../model/stack';
import { axes, Chart, fromZero, timeScale, zooming } from './base';
import { tooltip, type Reading } from './tooltip';

/** Latency of each hop as stacked areas; the flow's own latency as a line above. */
export class StackedChart {
  private readonly chart: Chart;
  private shown: Stack = { labels: [], times: [], own: [], tops: [], total: [] };
  private changes: PathChange[] = [];
  private key = '';
  private withTotal = true;

  constructor(
    private readonly now: () => number,
    height: number,
  ) {
    this.chart = new Chart(this.build(), height, 'Latency of each hop over time, stacked');
  }

  get element(): HTMLElement {
    return this.chart.element;
  }

  update(stack: Stack, changes: PathChange[]): void {
    this.shown = stack;
    this.changes = changes;
    const key = `${stack.labels.join('|')} ${this.withTotal}`;
    const changed = key !== this.key;
    this.key = key;
    this.chart.update([stack.times, ...stack.tops, stack.total], changed ? this.build() : undefined);
  }

  /** The flow's own latency includes the time on links, and can be much larger than the hops'. */
  showTotal(shown: boolean): void {
    this.withTotal = shown;
    this.key = '';
  }

  /** The points as they are drawn, for a file; null if there is none. */
  sheet(): Sheet | null {
    const { times, labels, own, total } = this.shown;
    if (times.length === 0) return null;
    const hops = labels.map((label, i) => ({ name: `at ${label}`, values: own[i] ?? [] }));
    return seriesSheet(times, [...hops, { name: 'flow latency', values: total }], 'ns');
  }

  destroy(): void {
    this.chart.destroy();
  }

  private build(): Omit<uPlot.Options, 'width' | 'height'> {
    const count = this.shown.labels.length;
    const zoom = zooming();
    return {
      padding: [18, 14, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, ...zoom.cursor },
      scales: { x: timeScale(this.now), y: { range: fromZero } },
      axes: axes(duration),
      series: [{}, ...this.shown.labels.map((label, i) => area(label, i)), totalLine(this.withTotal)],
      bands: Array.from({ length: Math.max(0, count - 1) }, (_, i) => ({
        series: [i + 2, i + 1] as [number, number],
        fill: () => faint(i + 1),
      })),
      hooks: { ...zoom.hooks, draw: [(plot) => this.drawMarks(plot)] },
      plugins: [tooltip((index) => this.read(index))],
    };
  }

  private read(index: number): Reading[] {
    const { labels, own, total } = this.shown;
    const hops = labels.map((label, i) => ({
      label: `at ${label}`,
      colour: seriesColour(i),
      text: duration(own[i]?.[index]),
    }));
    const present = hops.filter((_, i) => own[i]?.[index] !== null);
    return [
      { label: 'flow latency', colour: colour('text'), text: duration(total[index]) },
      ...present.reverse(),
    ];
  }

  private drawMarks(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour('warn');
    ctx.lineWidth = devicePixelRatio;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    let free = bbox.left;
    for (const change of this.changes) {
      const x = plot.valToPos(change.time, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const text = pathText(change.path);
      const start = Math.min(x, bbox.left + bbox.width - ctx.measureText(text).width);
      if (start < free) continue;
      ctx.fillText(text, start, bbox.top - 5 * devicePixelRatio);
      free = start + ctx.measureText(`${text}  `).width;
    }
    ctx.restore();
  }
}

function faint(index: number): string {
  return faded(seriesColour(index), 0.55);
}

function area(label: string, index: number): uPlot.Series {
  return {
    label,
    stroke: () => seriesColour(index),
    width: 1,
    points: { show: false },
    ...stepped(),
    ...(index === 0 ? { fill: () => faint(0) } : {}),
  };
}

/** A value holds until the next report. */
function stepped(): Pick<uPlot.Series, 'paths'> {
  const paths = uPlot.paths.stepped?.({ align: 1 });
  return paths ? { paths } : {};
}

function totalLine(show: boolean): uPlot.Series {
  return {
    label: 'flow latency',
    show,
    stroke: () => colour('text'),
    width: 1,
    dash: [4, 3],
    points: { show: false },
    ...stepped(),
  };
}

/** The colour of a hop, and its name. */
export function legendEntry(label: string, index: number): HTMLElement {
  return h(
    'span',
    {},
    h('i', { class: 'swatch', style: `background:var(--series-${(index % 8) + 1})` }),
    label,
  );
}
