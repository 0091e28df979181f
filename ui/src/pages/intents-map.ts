import type { Device, Domain, Plan } from '../api/manager';
import { h, s, setText, show } from '../lib/dom';
import { gets, places, tone } from '../model/intents';

/** Widest drawing; a narrower box gets a narrower one, so that names stay as large. */
const WIDTH = 640;
const LEAST = 280;
const HEIGHT = 220;
/** A larger network is shown as a table only. */
const MOST = 40;

/** A small map of the domain: devices coloured by state, or by what a plan does to them. */
export function domainMap() {
  const box = h('div', { class: 'domain-map' });
  const note = h('p', { class: 'table-note' });
  const element = h('div', {}, box, note);
  return {
    element,
    update(devices: readonly Device[], domain: Domain | null, plan: Plan | null): void {
      const fits = devices.length > 0 && devices.length <= MOST && domain !== null;
      show(box, fits);
      show(note, !fits);
      setText(
        note,
        devices.length > MOST ? `${devices.length} devices: too many for this map` : 'No devices.',
      );
      const width = Math.max(LEAST, Math.min(WIDTH, box.clientWidth || WIDTH));
      if (fits) box.replaceChildren(drawing(devices, domain, plan, width));
    },
  };
}

function drawing(devices: readonly Device[], domain: Domain, plan: Plan | null, width: number): SVGElement {
  const placed = places(devices, domain.links);
  const at = new Map(placed.map((one) => [one.node, { x: one.x * width, y: 36 + one.y * (HEIGHT - 84) }]));
  const lines = domain.links.flatMap(([a = 0, , b = 0]) => {
    const [from, to] = [at.get(a), at.get(b)];
    return from && to ? [s('line', { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: 'link' })] : [];
  });
  const nodes = placed.map((one) => {
    const { x = 0, y = 0 } = at.get(one.node) ?? {};
    const device = devices.find((device) => device.node === one.node);
    const { added, removed } = gets(plan, one.node);
    const change = [added > 0 ? `+${added}` : '', removed > 0 ? `−${removed}` : ''].join(' ').trim();
    const kind = plan
      ? added > 0
        ? 'adds'
        : removed > 0
          ? 'removes'
          : 'same'
      : domain.stopped
        ? 'none'
        : tone(device?.state ?? '');
    return s(
      'g',
      { class: `device ${kind}` },
      s('title', {}, plan ? `${one.name}: ${change || 'unchanged'}` : `${one.name}: ${device?.text ?? ''}`),
      s('circle', { cx: x, cy: y, r: 13 }),
      s('text', { x, y: y + 30, 'text-anchor': 'middle' }, one.name),
      s('text', { x, y: y - 19, 'text-anchor': 'middle', class: 'change' }, plan ? change : ''),
    );
  });
  const label = plan ? 'Changes by device' : domain.stopped ? 'Devices; INT is stopped' : 'Devices by state';
  return s(
    'svg',
    { viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img', 'aria-label': label },
    ...lines,
    ...nodes,
  );
}
