import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { h } from '../lib/dom';
import { dateTime } from '../lib/format';
import { colour, onTheme } from '../lib/theme';
import { between, zoomOut } from '../model/range';
import { WINDOW_SECONDS } from '../model/rates';
import { times } from '../times';

const FONT = '11px system-ui, sans-serif';

export type Format = (value: number) => string;

function timeLabels(_: uPlot, splits: number[]): string[] {
  const first = splits[0] ?? 0;
  if ((splits[splits.length - 1] ?? 0) - first > LONG_SECONDS)
    return splits.map((split) => dateTime(split * 1e9).slice(5, 16));
  const seconds = splits.some((split) => split % 60 !== 0);
  return splits.map((split) => {
    const date = new Date(split * 1000);
    const parts = [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])];
    return parts.map((part) => String(part).padStart(2, '0')).join(':');
  });
}

/** Axes in the theme's colours: read at each drawing, so that a theme change needs only a redraw. */
export function axes(format: Format): uPlot.Axis[] {
  const common = {
    stroke: () => colour('muted'),
    font: FONT,
    ticks: { show: false },
    grid: { stroke: () => colour('grid'), width: 1 },
  };
  return [
    { ...common, values: timeLabels, size: 24, gap: 4, space: (u) => (spanOf(u) > LONG_SECONDS ? 90 : 60) },
    { ...common, values: (_, splits) => splits.map(format), size: 58, gap: 6, space: 28 },
  ];
}

/** Space above the plot for the unit of the values. */
export const UNIT_ROOM = 18;

/** Writes what the values count above their axis. */
export function unitLabel(unit: string): uPlot.Hooks.Arrays {
  const draw = ({ ctx }: uPlot): void => {
    ctx.save();
    ctx.fillStyle = colour('muted');
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'top';
    ctx.fillText(unit, 0, 2 * devicePixelRatio);
    ctx.restore();
  };
  return unit === '' ? {} : { draw: [draw] };
}

/** A chart that keeps the width of its box and follows the theme. */
export class Chart {
  readonly element = h('div', { class: 'chart' });
  private plot: uPlot | undefined;
  private readonly observer: ResizeObserver;
  private readonly endTheme: () => void;
  private data: uPlot.AlignedData = [[]];

  constructor(
    private options: Omit<uPlot.Options, 'width' | 'height'>,
    private readonly height: number,
    label: string,
  ) {
    this.element.setAttribute('role', 'img');
    this.element.setAttribute('aria-label', label);
    this.element.style.height = `${height}px`;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
    this.endTheme = onTheme(() => {
      // On paper the box has another width.
      this.resize();
      this.plot?.redraw(false);
    });
  }

  /** Sets data; new options (another set of series) rebuild the drawing. */
  update(data: uPlot.AlignedData, options?: Omit<uPlot.Options, 'width' | 'height'>): void {
    this.data = data;
    if (options) {
      this.options = options;
      this.plot?.destroy();
      this.plot = undefined;
    }
    if (this.plot) this.plot.setData(data);
    else this.build();
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
    this.plot?.destroy();
  }

  private build(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.plot = new uPlot({ ...this.options, width, height: this.height }, this.data, this.element);
  }

  private resize(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    if (this.plot?.width === width) return;
    if (this.plot) this.plot.setSize({ width, height: this.height });
    else this.build();
  }
}

/** Longer times have days. */
const LONG_SECONDS = 20 * 3600;

function spanOf(plot: uPlot): number {
  return (plot.scales['x']?.max ?? 0) - (plot.scales['x']?.min ?? 0);
}

/** Times that were drawn over become those of all pages; twice clicked, twice as much is shown. */
export function zooming(): { cursor: Pick<uPlot.Cursor, 'drag' | 'bind'>; hooks: uPlot.Hooks.Arrays } {
  const select = (plot: uPlot): void => {
    const { left, width } = plot.select;
    if (width < 5) return;
    const time = (x: number): number => plot.posToVal(x, 'x') * 1000;
    const range = between(time(left), time(left + width));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    times.set(range);
  };
  const out = (): null => {
    times.set(zoomOut(times.range, times.now()));
    return null;
  };
  return {
    cursor: { drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => out } },
    hooks: { setSelect: [select] },
  };
}

/** The time of all pages: what is live, or the range. */
export function timeScale(now: () => number): uPlot.Scale {
  if (times.isLive()) return lastMinutes(now, WINDOW_SECONDS);
  return {
    time: true,
    range: () => {
      const { from, to } = times.limits();
      return [from / 1000, to / 1000];
    },
  };
}

const SHORTEST_SECONDS = 60;

/** Time range from the first point until now: at least one minute, at most this many seconds. */
function lastMinutes(now: () => number, seconds: number): uPlot.Scale {
  return {
    time: true,
    range: (_, first) => {
      const end = now() / 1e9;
      return [Math.max(end - seconds, Math.min(first ?? end, end - SHORTEST_SECONDS)), end];
    },
  };
}

/** From zero up, with a margin above; never an empty range. */
export function fromZero(_: uPlot, __: number | null, high: number | null): [number, number] {
  return [0, high === null || high <= 0 ? 1 : high * 1.12];
}

/** Values between two gaps: no line leads to them, so that only a point shows them. */
export function lonePoints(self: uPlot, series: number): number[] {
  const values = self.data[series] ?? [];
  const isKnown = (i: number): boolean => values[i] !== null && values[i] !== undefined;
  return [...values.keys()].filter((i) => isKnown(i) && !isKnown(i - 1) && !isKnown(i + 1));
}
