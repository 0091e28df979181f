import type uPlot from 'uplot';
import { colour, faded } from '../lib/theme';
import { axes, Chart, fromZero, timeScale, zooming, type Format } from './base';
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

  destroy(): void {
    this.chart.destroy();
  }

  private build(): Omit<uPlot.Options, 'width' | 'height'> {
    const { options } = this;
    const zoom = options.freeTime ? null : zooming();
    return {
      padding: [8, 14, 0, 0],
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
      ...(zoom ? { hooks: zoom.hooks } : {}),
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
