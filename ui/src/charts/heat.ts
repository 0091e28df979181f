import { dictionary } from '../lib/dictionary';
import { h, setText } from '../lib/dom';
import { dateTime, metricUnit, utc } from '../lib/format';
import type { Sheet } from '../lib/sheet';
import { colour, onTheme } from '../lib/theme';
import type { Heat, HeatRow } from '../api/types';
import { cellText, fraction, most, rowKey, rowName } from '../model/heat';
import { mix } from '../model/ramp';

export interface Cell {
  row: HeatRow;
  column: number;
  /** Its time, ns. */
  from: number;
  to: number;
}

export interface HeatOptions {
  /** A cell was chosen. */
  pick(cell: Cell): void;
  /** A span of time was drawn, ns. */
  zoom(from: number, to: number): void;
}

const ROW = 20;
const AXIS = 22;
const LEGEND_STOPS = [1, 2, 3, 4, 5].map((i) => `ramp-${i}`);

/** Rows × time, by colour. A click or Enter chooses a cell, a drag a span of time; arrows move. */
export class HeatMap {
  readonly element: HTMLElement;
  private readonly canvas = h('canvas', { tabindex: '0', role: 'application' });
  private readonly tip = h('div', { class: 'chart-tip', role: 'status' });
  private readonly observer: ResizeObserver;
  private readonly endTheme: () => void;
  private heat: Heat | null = null;
  private chosen: { key: string; from: number } | null = null;
  private cursor: { row: number; column: number } | null = null;
  private drag: { start: number; end: number } | null = null;

  constructor(private readonly options: HeatOptions) {
    this.canvas.setAttribute(
      'aria-label',
      'Heat map: arrows move, Enter shows the flows in the queue, worst queue first',
    );
    this.element = h('div', { class: 'heat' }, this.canvas, this.tip);
    this.tip.hidden = true;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.endTheme = onTheme(() => this.draw());
    this.listen();
  }

  update(heat: Heat, chosen: { key: string; from: number } | null): void {
    const at = this.cursor;
    const before = at === null ? undefined : this.heat?.rows[at.row];
    const time = at === null || !this.heat ? 0 : this.heat.from + at.column * this.heat.column;
    this.heat = heat;
    this.chosen = chosen;
    if (before) this.cursor = find(heat, before, time);
    if (before && this.cursor === null) this.tip.hidden = true;
    this.element.style.height = `${heat.rows.length * ROW + AXIS}px`;
    this.draw();
  }

  /** Its cells that have a value, for a file; null if there is none. */
  sheet(): Sheet | null {
    const { heat } = this;
    if (!heat || heat.rows.length === 0) return null;
    const columns = [
      { name: 'time', time: true },
      { name: 'row' },
      { name: 'node' },
      { name: 'interface' },
      { name: 'queue' },
      { name: heat.metric.replaceAll('_', ' '), unit: metricUnit(heat.metric) },
    ];
    const rows = heat.rows.flatMap((row) =>
      row.values.flatMap((value, i) =>
        value === null
          ? []
          : [[heat.from + i * heat.column, rowName(row), row.node, row.interface, row.queue, value]],
      ),
    );
    const left = heat.total - heat.rows.length;
    const more = heat.truncated ? ', and there are more than the map can show' : '';
    const cut = left > 0 ? `The worst ${heat.rows.length} of ${heat.total} rows${more}.` : '';
    return { columns, rows, cut };
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
  }

  private get labels(): number {
    return Math.min(180, Math.max(84, this.element.clientWidth * 0.18));
  }

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { start: event.offsetX, end: event.offsetX };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (this.drag) this.drag.end = event.offsetX;
      this.point(this.place(event.offsetX, event.offsetY));
    });
    canvas.addEventListener('pointerleave', () => this.point(null));
    canvas.addEventListener('pointerup', (event) => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.end - drag.start) > 6) return this.zoomTo(drag.start, drag.end);
      const place = this.place(event.offsetX, event.offsetY);
      if (place) this.pick(place);
    });
    canvas.addEventListener('keydown', (event) => this.key(event));
    canvas.addEventListener('blur', () => this.point(null));
  }

  private key(event: KeyboardEvent): void {
    const steps = dictionary<[number, number]>({
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    });
    const step = steps[event.key];
    const { heat } = this;
    if (!heat || heat.rows.length === 0) return;
    const columns = heat.rows[0]?.values.length ?? 0;
    if (step) {
      event.preventDefault();
      const at = this.cursor ?? { row: 0, column: worstColumn(heat.rows[0]) - step[1] };
      const row = clamp(at.row + step[0], heat.rows.length);
      this.point({ row, column: clamp(at.column + step[1], columns) });
    } else if (event.key === 'Enter' && this.cursor) {
      event.preventDefault();
      this.pick(this.cursor);
    }
  }

  private pick(place: { row: number; column: number }): void {
    const { heat } = this;
    const row = heat?.rows[place.row];
    if (!heat || !row) return;
    const from = heat.from + place.column * heat.column;
    this.options.pick({ row, column: place.column, from, to: from + heat.column });
  }

  private zoomTo(one: number, other: number): void {
    const { heat } = this;
    if (!heat) return;
    const width = this.element.clientWidth - this.labels;
    const time = (x: number): number =>
      heat.from + (Math.min(width, Math.max(0, x - this.labels)) / width) * (heat.to - heat.from);
    this.options.zoom(time(Math.min(one, other)), time(Math.max(one, other)));
  }

  private place(x: number, y: number): { row: number; column: number } | null {
    const { heat } = this;
    const columns = heat?.rows[0]?.values.length ?? 0;
    const row = Math.floor(y / ROW);
    const column = Math.floor(((x - this.labels) / (this.element.clientWidth - this.labels)) * columns);
    const isInside = row >= 0 && row < (heat?.rows.length ?? 0) && column >= 0 && column < columns;
    return isInside ? { row, column } : null;
  }

  private point(place: { row: number; column: number } | null): void {
    this.cursor = place;
    const { heat, tip } = this;
    const row = place === null ? undefined : heat?.rows[place.row];
    tip.hidden = !row;
    if (heat && row && place) {
      const time = heat.from + place.column * heat.column;
      tip.replaceChildren(
        h('time', {}, dateTime(time).slice(0, 19)),
        h('time', {}, utc(time)),
        h('div', {}, h('span', {}, rowName(row)), h('b', {}, cellText(heat, row, place.column))),
      );
      const width = this.element.clientWidth;
      const x = this.labels + ((width - this.labels) * place.column) / row.values.length;
      tip.style.left = x > width / 2 ? 'auto' : `${x + 14}px`;
      tip.style.right = x > width / 2 ? `${width - x + 6}px` : 'auto';
      tip.style.top = `${Math.max(0, place.row * ROW - 8)}px`;
    }
    this.draw();
  }

  private draw(): void {
    const { canvas, element, heat } = this;
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (width === 0 || !heat) return;
    const scale = devicePixelRatio;
    [canvas.width, canvas.height] = [width * scale, height * scale];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    if (!context) return;
    context.scale(scale, scale);
    context.font = '12px system-ui, sans-serif';
    this.drawCells(context, heat, width);
    timeAxis(context, heat, { left: this.labels, width, height, spacing: 90, longSpacing: 130 });
  }

  private drawCells(context: CanvasRenderingContext2D, heat: Heat, width: number): void {
    const stops = LEGEND_STOPS.map(colour);
    const greatest = most(heat);
    const [text, line, accent] = [colour('text'), colour('grid'), colour('text')];
    heat.rows.forEach((row, at) => {
      const y = at * ROW;
      const cell = (width - this.labels) / row.values.length;
      context.fillStyle = text;
      context.textBaseline = 'middle';
      context.fillText(labelText(context, rowName(row), this.labels - 10), 0, y + ROW / 2);
      context.fillStyle = line;
      context.fillRect(this.labels, y + ROW - 1, width - this.labels, 1);
      row.values.forEach((value, column) => {
        const shade = mix(stops, fraction(value, greatest));
        if (shade === null) return;
        context.fillStyle = shade;
        context.fillRect(this.labels + column * cell, y + 1, Math.max(1, cell - (cell > 4 ? 1 : 0)), ROW - 3);
      });
      const marked = this.marked(heat, row, at);
      for (const column of marked) {
        context.strokeStyle = accent;
        context.lineWidth = 2;
        context.strokeRect(this.labels + column * cell - 1, y, Math.max(3, cell + 1), ROW - 1);
      }
    });
  }

  private marked(heat: Heat, row: HeatRow, at: number): number[] {
    const found: number[] = [];
    if (this.cursor?.row === at) found.push(this.cursor.column);
    if (this.chosen && this.chosen.key === rowKey(row)) {
      const column = Math.floor((this.chosen.from - heat.from) / heat.column);
      if (column >= 0 && column < row.values.length) found.push(column);
    }
    return found;
  }
}

/** Times below a map, from `left` to `width`, each `spacing` pixels or more; `longSpacing` where they need their day. */
export function timeAxis(
  context: CanvasRenderingContext2D,
  { from, to }: { from: number; to: number },
  at: { left: number; width: number; height: number; spacing: number; longSpacing: number },
): void {
  const { left, width, height } = at;
  context.fillStyle = colour('muted');
  context.textBaseline = 'bottom';
  const isLong = to - from > 20 * 3600e9;
  const ticks = Math.max(2, Math.floor((width - left) / (isLong ? at.longSpacing : at.spacing)));
  for (let i = 0; i < ticks; i += 1) {
    const time = dateTime(from + ((to - from) * i) / ticks);
    const text = isLong ? time.slice(5, 16) : time.slice(11, 19);
    context.fillText(text, left + ((width - left) * i) / ticks, height);
  }
}

/** A legend from nothing to the greatest value. */
export function heatLegend(): { element: HTMLElement; set(text: string, unit?: string): void } {
  const [end, of] = [h('span', {}), h('span', {})];
  const swatches = LEGEND_STOPS.map((stop) =>
    h('i', { class: 'swatch', style: `background:var(--${stop})` }),
  );
  const element = h('span', { class: 'legend' }, of, '0', ...swatches, end);
  return {
    element,
    set(text, unit = '') {
      setText(end, text);
      setText(of, unit === '' ? '' : `${unit}:`);
    },
  };
}

/** Where a row and a time are now: rows are ordered by their worst value, and time goes on. */
function find(heat: Heat, row: HeatRow, time: number): { row: number; column: number } | null {
  const at = heat.rows.findIndex((one) => rowName(one) === rowName(row));
  const column = Math.floor((time - heat.from) / heat.column);
  return at >= 0 && column >= 0 && column < (heat.rows[at]?.values.length ?? 0) ? { row: at, column } : null;
}

function worstColumn(row: HeatRow | undefined): number {
  if (!row) return 0;
  return Math.max(0, row.values.indexOf(row.worst));
}

function clamp(value: number, length: number): number {
  return Math.min(Math.max(0, value), Math.max(0, length - 1));
}

/** On a narrow screen, the name of an interface and the number of a queue are worth more than the words. */
function labelText(context: CanvasRenderingContext2D, name: string, width: number): string {
  if (context.measureText(name).width <= width) return name;
  return fitted(context, name.replace(' interface ', ' ').replace(' queue ', ' q'), width);
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let short = text;
  while (short.length > 1 && context.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return `${short}…`;
}
