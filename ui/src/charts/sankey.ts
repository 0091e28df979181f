import type { Traffic } from '../api/types';
import { h, s } from '../lib/dom';
import { onTheme } from '../lib/theme';
import { dimensionLabel } from '../model/traffic';
import { sankey, type Band, type Bar } from '../model/sankey';
import { placeColour } from './areas';

const HEIGHT = 420;
const HEAD = 22;
const BAR = 12;

/** How much goes from each value of one dimension to each of the next. */
export class SankeyChart {
  readonly element = h('div', { class: 'sankey' });
  private readonly observer: ResizeObserver;
  private readonly endTheme: () => void;
  private traffic: Traffic | null = null;

  constructor(
    private readonly format: (value: number) => string,
    private readonly pick: (filter: string) => void,
  ) {
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.endTheme = onTheme(() => this.draw());
  }

  update(traffic: Traffic): void {
    this.traffic = traffic;
    this.draw();
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
  }

  private draw(): void {
    const { traffic } = this;
    const width = this.element.clientWidth;
    if (!traffic || width === 0 || traffic.by.length < 2) return this.element.replaceChildren();
    const { bars, bands } = sankey(traffic, HEIGHT);
    const levels = traffic.by.length;
    const x = (level: number): number => (level * (width - BAR)) / (levels - 1);
    const share = (count: number): string =>
      traffic.total.count > 0 && !traffic.overlapping
        ? ` (${((100 * count) / traffic.total.count).toFixed(1)} %)`
        : '';
    const heads = traffic.by.map((dimension, level) =>
      text(x(level), HEAD - 8, level, levels, dimensionLabel(dimension), 'sankey-head'),
    );
    const image = s(
      'svg',
      {
        width,
        height: HEIGHT + HEAD + 8,
        role: 'group',
        'aria-label': `Reports from ${traffic.by.map(dimensionLabel).join(' to ').toLowerCase()}`,
      },
      ...heads,
      ...bands.map((band) => this.band(band, x, share)),
      ...bars.flatMap((bar) => this.bar(bar, x(bar.level), levels, share)),
    );
    // The focus stays on the bar that has it.
    const focused = this.element.querySelector(':focus')?.getAttribute('data-bar');
    this.element.replaceChildren(image);
    if (focused) this.element.querySelector<SVGElement>(`[data-bar="${CSS.escape(focused)}"]`)?.focus();
  }

  private band(band: Band, x: (level: number) => number, share: (count: number) => string): SVGElement {
    const [from, to] = [x(band.from.level) + BAR, x(band.to.level)];
    const middle = (from + to) / 2;
    const [a, b] = [HEAD + band.fromTop + band.height / 2, HEAD + band.toTop + band.height / 2];
    const title = s(
      'title',
      {},
      `${band.from.name} → ${band.to.name}: ${this.format(band.count)}${share(band.count)}`,
    );
    return s(
      'path',
      {
        d: `M${from},${a} C${middle},${a} ${middle},${b} ${to},${b}`,
        stroke: placeColour(band.from.place),
        'stroke-width': Math.max(0.5, band.height),
        class: 'sankey-band',
      },
      title,
    );
  }

  private bar(bar: Bar, left: number, levels: number, share: (count: number) => string): SVGElement[] {
    const { filter } = bar;
    const about = `${bar.name}: ${this.format(bar.count)}${share(bar.count)}`;
    const click = filter === null ? {} : { tabindex: 0, role: 'button', 'aria-label': `${about}; only this` };
    const rectangle = s(
      'rect',
      {
        x: left,
        y: HEAD + bar.top,
        width: BAR,
        height: bar.height,
        fill: placeColour(bar.place),
        'data-bar': `${bar.level} ${bar.name}`,
        ...click,
      },
      s('title', {}, about),
    );
    if (filter !== null) {
      rectangle.addEventListener('click', () => this.pick(filter));
      rectangle.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        this.pick(filter);
      });
    }
    if (bar.height < 9) return [rectangle];
    const label = text(
      left,
      HEAD + bar.top + bar.height / 2 + 4,
      bar.level,
      levels,
      bar.name,
      'sankey-label',
    );
    return [rectangle, label];
  }
}

/** A text beside a bar, inside the picture. */
function text(
  left: number,
  y: number,
  level: number,
  levels: number,
  content: string,
  name: string,
): SVGElement {
  const isLast = level === levels - 1;
  const isHead = name === 'sankey-head';
  const inset = isHead ? 0 : BAR + 5;
  const x = isLast ? left + BAR - inset : left + inset;
  return s('text', { x, y, class: name, 'text-anchor': isLast ? 'end' : 'start' }, shortened(content));
}

const LONGEST = 34;

function shortened(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
