import { h, setText } from '../lib/dom';
import { count, duration, percent } from '../lib/format';
import { ticks, type MapMetric, type Scale } from '../model/topology';

const LINKS = 'Links: latest; width: flows. Grey: not reported. Bad: the last fifth of the scale.';

export const MAP_METRICS: readonly { metric: MapMetric; title: string; legend: string; note: string }[] = [
  {
    metric: 'latency',
    title: 'Latency',
    legend: 'Hop latency',
    note: `Nodes: p99 of the last second. ${LINKS}`,
  },
  {
    metric: 'queue',
    title: 'Queue',
    legend: 'Queue occupancy, device units',
    note: `Nodes: highest of the last second. ${LINKS}`,
  },
  {
    metric: 'utilization',
    title: 'Utilization',
    legend: 'Link utilization',
    note: `Nodes: busiest link. ${LINKS}`,
  },
  {
    metric: 'loss',
    title: 'Loss',
    legend: 'Lost packets',
    note: 'For the selected time, as in the tables below. Nodes: dropped packets that they reported. Links: packets dropped before them and lost on them, at least. Grey: unknown.',
  },
];

/** Buttons that choose the metric of the colours. */
export function metricPicker(chosen: (metric: MapMetric) => void) {
  const buttons = MAP_METRICS.map(({ metric, title }) =>
    h('button', { type: 'button', data: { metric }, on: { click: () => chosen(metric) } }, title),
  );
  return {
    element: h('div', { class: 'segments', role: 'group', aria: { label: 'Colour by' } }, ...buttons),
    update(shown: MapMetric): void {
      for (const button of buttons)
        button.setAttribute('aria-pressed', String(button.dataset['metric'] === shown));
    },
  };
}

/** The metric of this name; latency where there is none. */
export function metricNamed(name: string): MapMetric {
  return MAP_METRICS.find(({ metric }) => metric === name)?.metric ?? 'latency';
}

export function metricText(metric: MapMetric, value: number | null): string {
  if (metric === 'latency') return duration(value);
  return metric === 'utilization' ? percent(value) : count(value);
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
    update(metric: MapMetric, scale: Scale): void {
      const texts = ticks(scale).map((tick) => metricText(metric, tick));
      if (shown === metric + texts.join()) return;
      shown = metric + texts.join();
      const words = MAP_METRICS.find((known) => known.metric === metric);
      setText(title, words?.legend ?? '');
      setText(note, words?.note ?? '');
      steps.replaceChildren(...texts.map((text) => h('span', {}, text)));
    },
  };
}
