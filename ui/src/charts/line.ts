import type uPlot from 'uplot';
import { seriesSheet, type Sheet } from '../lib/sheet';
import { colour, faded } from '../lib/theme';
import { axes, Chart, fromZero, timeScale, UNIT_ROOM, unitLabel, zooming, type Format } from './base';
import { tooltip } from './tooltip';

export interface LineSeries {
  label: string;
  /** Name of a colour variable. */
  colour: string;
  fill?: boolean;
  /** Draw a line across gaps. */
  bridge?: boolean;
}

export interface LineOptions {
  label: string;
  format: Format;
  /** Of the values, for files; above the axis too, where `format` does not write it: `reports/s`. */
  unit?: string;
  /** `format` writes units of its own, such as ms. */
  unitInFormat?: boolean;
  now(): number;
  height?: number;
  /** Charts with the same key show one cursor. */
  sync?: string;
  /** Times as they are in the data instead of those of the page. */
  freeTime?: boolean;
  /** Range from the data instead of from zero. */
  freeRange?: boolean;
}

/** Lines over the time of the page. */
export class LineChart {
  private readonly chart: Chart;
  private data: uPlot.AlignedData = [[]];
  private key: string;

  constructor(
    private series: LineSeries[],
    private readonly options: LineOptions,
  ) {
    this.key = keyOf(series);
    this.chart = new Chart(this.build(), options.height ?? 150, options.label);
  }

  get element(): HTMLElement {
    return this.chart.element;
  }

  update(data: uPlot.AlignedData, series?: LineSeries[]): void {
    this.data = data;
    const changed = series !== undefined && keyOf(series) !== this.key;
    if (changed) {
      this.series = series;
      this.key = keyOf(series);
    }
    this.chart.update(data, changed ? this.build() : undefined);
  }

  /** The points as they are drawn, for a file; null if there is none. */
  sheet(cut = ''): Sheet | null {
    const [axis, ...columns] = this.data;
    const isEmpty = !columns.some((column) => Array.from(column).some((value) => value !== null));
    if (isEmpty) return null;
    const series = this.series.map(({ label }, i) => ({ name: label, values: columns[i] ?? [] }));
    return { ...seriesSheet(axis, series, this.options.unit ?? ''), cut };
  }

  destroy(): void {
    this.chart.destroy();
  }

  private build(): Omit<uPlot.Options, 'width' | 'height'> {
    const { options } = this;
    const zoom = options.freeTime ? null : zooming();
    const unit = options.unitInFormat ? '' : (options.unit ?? '');
    return {
      padding: [unit === '' ? 8 : UNIT_ROOM, 14, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { size: 6 },
        drag: { x: false, y: false },
        ...zoom?.cursor,
        ...sync(options.sync),
      },
      scales: {
        x: options.freeTime ? { time: true } : timeScale(options.now),
        y: options.freeRange ? {} : { range: fromZero },
      },
      axes: axes(options.format),
      series: [{}, ...this.series.map(seriesOptions)],
      hooks: { ...zoom?.hooks, ...unitLabel(unit) },
      plugins: [tooltip((index) => this.read(index))],
    };
  }

  private read(index: number): { label: string; colour: string; text: string }[] {
    return this.series.map((series, i) => {
      const value = this.data[i + 1]?.[index];
      const text = value === null || value === undefined ? '–' : this.options.format(value);
      return { label: series.label, colour: colour(series.colour), text };
    });
  }
}

function keyOf(series: readonly LineSeries[]): string {
  return series.map((one) => `${one.label} ${one.colour}`).join('|');
}

function sync(key: string | undefined): Pick<uPlot.Cursor, 'sync'> {
  return key === undefined ? {} : { sync: { key } };
}

function seriesOptions(series: LineSeries): uPlot.Series {
  return {
    label: series.label,
    stroke: () => colour(series.colour),
    width: 1.5,
    points: { show: false },
    ...(series.bridge ? { spanGaps: true } : {}),
    ...(series.fill ? { fill: () => faded(colour(series.colour), 0.15) } : {}),
  };
}
