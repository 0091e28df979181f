import type { Burst } from '../api/types';
import { h } from '../lib/dom';
import type { Sheet } from '../lib/sheet';
import { count, duration, flowName } from '../lib/format';
import { colour, onTheme, seriesColour } from '../lib/theme';

const HEIGHT = 190;
const LEFT = 58;
const BOTTOM = 22;
const TOP = 20;
const NAMED = 8;

/** Each reported packet of a burst: when it left, and what it saw of the queue; in the colour of its flow. */
export class PacketChart {
  readonly element = h('div', { class: 'packets', role: 'img' });
  private readonly canvas = h('canvas');
  private readonly observer: ResizeObserver;
  private readonly endTheme: () => void;
  private burst: Burst | null = null;

  constructor() {
    this.element.setAttribute('aria-label', 'Packets of the burst: time and queue occupancy, by flow');
    this.element.style.height = `${HEIGHT}px`;
    this.element.append(this.canvas);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.endTheme = onTheme(() => this.draw());
  }

  update(burst: Burst): void {
    this.burst = burst;
    this.draw();
  }

  /** Its packets, for a file; null if there is none. */
  sheet(): Sheet | null {
    const { burst } = this;
    if (!burst || burst.packets.length === 0) return null;
    const nameOf = (place: number | null): string | null => {
      const key = place === null ? null : burst.flows[place]?.flow;
      return key ? flowName(key) : null;
    };
    return {
      columns: [
        { name: 'time', time: true },
        { name: 'flow' },
        { name: 'queue occupancy', unit: 'device units' },
        { name: 'hop latency', unit: 'ns' },
      ],
      rows: burst.packets.map(({ ts, flow, occupancy, latency }) => [ts, nameOf(flow), occupancy, latency]),
      cut:
        burst.packets.length < burst.reports
          ? `${burst.packets.length} of ${burst.reports} packets; the others are counted but not listed.`
          : '',
    };
  }

  destroy(): void {
    this.observer.disconnect();
    this.endTheme();
  }

  private draw(): void {
    const { canvas, burst } = this;
    const width = this.element.clientWidth;
    if (width === 0 || !burst || burst.peak === null) return;
    const scale = devicePixelRatio;
    [canvas.width, canvas.height] = [width * scale, HEIGHT * scale];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${HEIGHT}px`;
    const context = canvas.getContext('2d');
    if (!context) return;
    context.scale(scale, scale);
    context.font = '11px system-ui, sans-serif';
    drawPackets(context, burst, width);
  }
}

function drawPackets(context: CanvasRenderingContext2D, burst: Burst, width: number): void {
  const hasDepth = burst.occupancy !== null;
  const depth = (packet: Burst['packets'][number]): number | null =>
    hasDepth ? packet.occupancy : packet.latency;
  const { from, to } = shown(burst);
  const highest = burst.packets.reduce((greatest, packet) => Math.max(greatest, depth(packet) ?? 0), 1);
  const x = (ts: number): number => LEFT + ((ts - from) / Math.max(1, to - from)) * (width - LEFT - 8);
  const y = (value: number): number => TOP + (1 - value / highest) * (HEIGHT - BOTTOM - TOP - 4);
  // The time in which it filled.
  if (burst.begun !== null && burst.peak !== null) {
    context.fillStyle = colour('raised');
    context.fillRect(x(burst.begun), 4, Math.max(2, x(burst.peak) - x(burst.begun)), HEIGHT - BOTTOM - 4);
  }
  context.fillStyle = colour('muted');
  context.fillText(hasDepth ? 'queue occupancy, device units' : 'hop latency', 0, 10);
  for (const part of [0, 0.5, 1]) {
    const value = highest * part;
    context.fillText(hasDepth ? count(value) : duration(value), 0, y(value) + 4);
    context.fillText(
      `+${duration((to - from) * part)}`,
      Math.min(LEFT + (width - LEFT - 8) * part, width - 56),
      HEIGHT - 6,
    );
  }
  for (const packet of burst.packets) {
    const value = depth(packet);
    if (value === null || packet.ts < from || packet.ts > to) continue;
    context.fillStyle = flowColour(packet.flow);
    context.fillRect(x(packet.ts) - 1.5, y(value) - 1.5, 3.5, 3.5);
  }
}

/** The rise and as long again on both sides; all if that is not known. */
function shown(burst: Burst): { from: number; to: number } {
  const first = burst.packets[0]?.ts ?? 0;
  const last = burst.packets[burst.packets.length - 1]?.ts ?? first;
  if (burst.begun === null || burst.peak === null || burst.peak <= burst.begun)
    return { from: first, to: last };
  const length = burst.peak - burst.begun;
  return {
    from: Math.max(first, burst.begun - length),
    to: Math.min(last, burst.peak + 3 * length),
  };
}

/** The colour of a burst's flow, by its place. */
export function flowColour(place: number | null): string {
  return place === null || place >= NAMED ? colour('unknown') : seriesColour(place);
}
