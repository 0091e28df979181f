import type uPlot from 'uplot';
import { h } from '../lib/dom';
import { clock, dateTime, utc } from '../lib/format';
import { times } from '../times';

export interface Reading {
  label: string;
  colour: string;
  text: string;
}

/** A box beside the cursor with the time and the result of `read` for that point. */
export function tooltip(read: (index: number) => Reading[]): uPlot.Plugin {
  const box = h('div', { class: 'chart-tip', role: 'status' });
  box.hidden = true;
  return {
    hooks: {
      init: (plot) => plot.over.append(box),
      setCursor: (plot) => place(plot, box, read),
    },
  };
}

function place(plot: uPlot, box: HTMLElement, read: (index: number) => Reading[]): void {
  const { idx, left } = plot.cursor;
  const time = idx === null || idx === undefined ? undefined : plot.data[0][idx];
  if (idx === null || idx === undefined || time === undefined || left === undefined || left < 0) {
    box.hidden = true;
    return;
  }
  const lines = read(idx).map((reading) => {
    const swatch = h('i', { class: 'swatch', style: `background:${reading.colour}` });
    return h('div', {}, swatch, h('span', {}, reading.label), h('b', {}, reading.text));
  });
  box.replaceChildren(
    h('time', {}, times.isLive() ? clock(time * 1e9).slice(0, 8) : dateTime(time * 1e9).slice(0, 19)),
    h('time', {}, utc(time * 1e9)),
    ...lines,
  );
  box.hidden = false;
  const right = left > plot.over.clientWidth / 2;
  box.style.left = right ? 'auto' : `${left + 12}px`;
  box.style.right = right ? `${plot.over.clientWidth - left + 12}px` : 'auto';
}
