import { h, setText } from '../lib/dom';
import { count, duration, percent } from '../lib/format';
import { ticks, type Lens, type Scale } from '../model/topology';

const LINKS = 'Links: latest; width: flows. Grey: not reported.';

const LENSES: readonly { lens: Lens; title: string; legend: string; note: string }[] = [
  {
    lens: 'latency',
    title: 'Latency',
    legend: 'Hop latency',
    note: `Nodes: p99 of the last second. ${LINKS}`,
  },
  {
    lens: 'queue',
    title: 'Queue',
    legend: 'Queue occupancy, device units',
    note: `Nodes: highest of the last second. ${LINKS}`,
  },
  {
    lens: 'utilization',
    title: 'Utilization',
    legend: 'Link utilization',
    note: `Nodes: busiest link. ${LINKS}`,
  },
];

/** Buttons that choose the metric (lens) of the colours. */
export function lensPicker(first: Lens, chosen: (lens: Lens) => void): HTMLElement {
  const buttons = LENSES.map(({ lens, title }) => {
    const button = h(
      'button',
      { type: 'button', data: { lens }, aria: { pressed: String(lens === first) } },
      title,
    );
    button.addEventListener('click', () => {
      for (const other of buttons) other.setAttribute('aria-pressed', String(other === button));
      chosen(lens);
    });
    return button;
  });
  return h('div', { class: 'segments', role: 'group', aria: { label: 'Colour by' } }, ...buttons);
}

export function lensText(lens: Lens, value: number | null): string {
  if (lens === 'latency') return duration(value);
  return lens === 'queue' ? count(value) : percent(value);
}

/** The scale of colours with its units, and the meaning of the widths. */
export function legendView() {
  const title = h('span', { class: 'legend-title' });
  const steps = h('div', { class: 'ticks' });
  const note = h('span', { class: 'muted' });
  const element = h(
    'div',
    { class: 'map-legend' },
    title,
    h('div', { class: 'scale' }, h('div', { class: 'ramp', aria: { hidden: 'true' } }), steps),
    note,
  );
  let shown = '';
  return {
    element,
    update(lens: Lens, scale: Scale): void {
      const texts = ticks(scale).map((tick) => lensText(lens, tick));
      if (shown === lens + texts.join()) return;
      shown = lens + texts.join();
      const words = LENSES.find((known) => known.lens === lens);
      setText(title, words?.legend ?? '');
      setText(note, words?.note ?? '');
      steps.replaceChildren(...texts.map((text) => h('span', {}, text)));
    },
  };
}
