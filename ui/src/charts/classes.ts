import type { HopLatencies, LatencySpread } from '../api/types';
import { h } from '../lib/dom';
import { dateTime, duration } from '../lib/format';
import { colour, onTheme } from '../lib/theme';
import { mix } from '../model/ramp';
import { timeAxis } from './heat';

const ROW = 15;
const AXIS = 20;
const LABELS = 66;
const LINES = [
  { name: 'p50', dash: [] },
  { name: 'p90', dash: [6, 3] },
  { name: 'p99', dash: [2, 3] },
] as const;

/** How latencies of one hop were distributed over time: classes of latency × time, with quantiles as lines. */
export class ClassMap {
  readonly element: HTMLElement;
  private readonly canvas = h('canvas', { role: 'img' });
  private readonly tip = h('div', { class: 'chart-tip' });
  private readonly observer = new ResizeObserver(() => this.draw());
  private readonly endTheme = onTheme(() => this.draw());
  private latencies: HopLatencies | null = null;
  private spread: LatencySpread | null = null;

  constructor() {
    this.tip.hidden = true;
    this.element = h('div', { class: 'heat classes' }, this.canvas, this.tip);
    this.observer.observe(this.element);
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener('pointerleave', () => (this.tip.hidden = true));
  }

  update(latencies: HopLatencies | null, spread: LatencySpread | null, label: string): void {
    this.latencies = latencies;
    this.spread = spread;
    this.canvas.setAttribute(
      'aria-label',
      `${label}: distribution of latency over time; the table has the quantiles`,
    );
    this.element.style.height = `${(latencies?.bounds.length ?? 0) * ROW + AXIS}px`;
    this.draw();
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
  }

  private draw(): void {
    const { canvas, element, latencies, spread } = this;
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (width === 0) return;
    [canvas.width, canvas.height] = [width * devicePixelRatio, height * devicePixelRatio];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    if (!context || !latencies || !spread) return;
    context.scale(devicePixelRatio, devicePixelRatio);
    context.font = '11px system-ui, sans-serif';
    this.cells(context, latencies, spread, width);
    this.lines(context, latencies, spread, width);
    timeAxis(context, latencies, { left: LABELS, width, height, spacing: 80, longSpacing: 110 });
  }

  private cells(
    context: CanvasRenderingContext2D,
    { bounds }: HopLatencies,
    { classes }: LatencySpread,
    width: number,
  ): void {
    const stops = [1, 2, 3, 4, 5].map((step) => colour(`ramp-${step}`));
    const cell = (width - LABELS) / Math.max(1, classes.length);
    context.textBaseline = 'middle';
    bounds.forEach((bound, i) => {
      const y = (bounds.length - 1 - i) * ROW;
      context.fillStyle = colour('muted');
      context.fillText(`≤ ${duration(bound)}`, 0, y + ROW / 2);
      context.fillStyle = colour('grid');
      context.fillRect(LABELS, y + ROW - 1, width - LABELS, 1);
      classes.forEach((column, at) => {
        const part = column[i] ?? 0;
        const shade = part === 0 ? null : mix(stops, Math.sqrt(part / 1000));
        if (shade === null) return;
        context.fillStyle = shade;
        context.fillRect(LABELS + at * cell, y + 1, Math.max(1, cell - (cell > 4 ? 1 : 0)), ROW - 2);
      });
    });
  }

  private lines(
    context: CanvasRenderingContext2D,
    { bounds }: HopLatencies,
    spread: LatencySpread,
    width: number,
  ): void {
    const columns = [spread.medians, spread.p90s, spread.p99s];
    const cell = (width - LABELS) / Math.max(1, spread.classes.length);
    context.strokeStyle = colour('text');
    context.lineWidth = 1.5;
    LINES.forEach(({ dash }, which) => {
      context.setLineDash([...dash]);
      context.beginPath();
      let drawn = false;
      (columns[which] ?? []).forEach((value, at) => {
        const x = LABELS + at * cell;
        if (value === null) drawn = false;
        else {
          const y = this.height(bounds, value);
          if (drawn) context.lineTo(x, y);
          else context.moveTo(x, y);
          context.lineTo(x + cell, y);
          drawn = true;
        }
      });
      context.stroke();
    });
    context.setLineDash([]);
  }

  /** Where a value stands: inside of its class by its logarithm. */
  private height(bounds: readonly number[], value: number): number {
    const i = bounds.findIndex((bound) => value <= bound);
    const at = i < 0 ? bounds.length - 1 : i;
    const [low, high] = [bounds[at - 1] ?? (bounds[at] ?? 1) / 2, bounds[at] ?? 1];
    const part = value <= low ? 0 : Math.min(1, Math.log(value / low) / Math.log(high / low));
    return (bounds.length - at - part) * ROW;
  }

  private point(x: number, y: number): void {
    const { latencies, spread, tip } = this;
    const columns = spread?.classes.length ?? 0;
    const width = this.element.clientWidth - LABELS;
    const column = Math.floor(((x - LABELS) / Math.max(1, width)) * columns);
    const bounds = latencies?.bounds ?? [];
    const row = bounds.length - 1 - Math.floor(y / ROW);
    const inside = column >= 0 && column < columns && row >= 0 && row < bounds.length;
    tip.hidden = !inside;
    if (!latencies || !spread || !inside) return;
    const value = (list: readonly (number | null)[]): string => duration(list[column] ?? null);
    const part = spread.classes[column]?.[row] ?? 0;
    tip.replaceChildren(
      h('time', {}, dateTime(latencies.from + column * latencies.column).slice(0, 19)),
      h('div', {}, h('span', {}, `≤ ${duration(bounds[row])}`), h('b', {}, `${part / 10} % of the time`)),
      h('div', {}, h('span', {}, 'p50'), h('b', {}, value(spread.medians))),
      h('div', {}, h('span', {}, 'p90'), h('b', {}, value(spread.p90s))),
      h('div', {}, h('span', {}, 'p99'), h('b', {}, value(spread.p99s))),
    );
    tip.style.left = x > width / 2 ? 'auto' : `${x + 14}px`;
    tip.style.right = x > width / 2 ? `${this.element.clientWidth - x + 6}px` : 'auto';
    tip.style.top = `${Math.max(0, y - 8)}px`;
  }
}
