import type uPlot from 'uplot';
import { seriesSheet, type Sheet } from '../lib/sheet';
import { colour, faded, seriesColour } from '../lib/theme';
import { tops, type Curves } from '../model/traffic';
import {
  axes,
  Chart,
  fromZero,
  lonePoints,
  timeScale,
  UNIT_ROOM,
  unitLabel,
  zooming,
  type Format,
} from './base';
import { tooltip, type Reading } from './tooltip';

interface AreasOptions {
  label: string;
  now(): number;
  height: number;
}

/** Curves over time, side by side or on top of one another. */
export class AreasChart {
  private readonly chart: Chart;
  private shown: Curves = { times: [], curves: [] };
  private format: Format = String;
  private isStacked = false;
  private unit = '';
  private key = '';

  constructor(private readonly options: AreasOptions) {
    this.chart = new Chart(this.build(), options.height, options.label);
  }

  get element(): HTMLElement {
    return this.chart.element;
  }

  /** `unit`: of the values, if `format` does not write one. */
  update(curves: Curves, isStacked: boolean, [format, unit]: [Format, string]): void {
    const names = curves.curves.map(({ name, place }) => `${name} ${place}`);
    const key = JSON.stringify([isStacked, names]);
    const changed = key !== this.key || format !== this.format;
    this.key = key;
    [this.shown, this.format, this.isStacked, this.unit] = [curves, format, isStacked, unit];
    const values = isStacked ? tops(curves.curves) : curves.curves.map((curve) => curve.values);
    this.chart.update([curves.times, ...values], changed ? this.build() : undefined);
  }

  /** The points as they are drawn, for a file; null if there is none. */
  sheet(unit: string): Sheet | null {
    const { times, curves } = this.shown;
    return times.length === 0 ? null : seriesSheet(times, curves, unit);
  }

  destroy(): void {
    this.chart.destroy();
  }

  private build(): Omit<uPlot.Options, 'width' | 'height'> {
    const { curves } = this.shown;
    const zoom = zooming();
    const bands = this.isStacked ? Array.from({ length: Math.max(0, curves.length - 1) }, (_, i) => i) : [];
    return {
      padding: [this.unit === '' ? 8 : UNIT_ROOM, 14, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, ...zoom.cursor },
      scales: { x: timeScale(this.options.now), y: { range: fromZero } },
      axes: axes((value) => this.format(value)),
      series: [
        {},
        ...curves.map(({ name, place }, i) => ({
          label: name,
          stroke: () => placeColour(place),
          width: this.isStacked ? 1 : 1.5,
          points: { show: true, size: 6, filter: lonePoints },
          ...(this.isStacked && i === 0 ? { fill: () => faded(placeColour(place), 0.55) } : {}),
        })),
      ],
      bands: bands.map((i) => ({
        series: [i + 2, i + 1] as [number, number],
        fill: () => faded(placeColour(curves[i + 1]?.place ?? null), 0.55),
      })),
      hooks: { ...zoom.hooks, ...unitLabel(this.unit) },
      plugins: [tooltip((index) => this.read(index))],
    };
  }

  private read(index: number): Reading[] {
    const readings = this.shown.curves.map(({ name, place, values }) => {
      const value = values[index];
      const text = value === null || value === undefined ? '–' : this.format(value);
      return { label: name, colour: placeColour(place), text };
    });
    // As they lie on top of one another.
    return this.isStacked ? readings.reverse() : readings;
  }
}

/** The colour of a group, by its place; the others have one of their own. */
export function placeColour(place: number | null): string {
  return place === null ? colour('unknown') : seriesColour(place);
}
