import { toScreen, type Camera, type Size } from '../model/camera';
import { shortened, Taken } from '../model/labels';
import type { Box } from '../model/scene';
import type { ItemLook, LineLook, Looks, Stroke } from './topology-style';

/** What one drawing consisted of. */
export interface Drawn {
  strokes: number;
  lines: number;
  boxes: number;
  labels: number;
  routes: number;
}

/** A box on the screen. */
interface Placed extends Box {
  look: ItemLook;
}

const FONT = 'system-ui, sans-serif';
/** More lines than this are drawn as hairlines without arrows: the picture shows where, the list what. */
const MAX_BROAD = 1500;
const MAX_ARROWS = 300;
const MAX_LABELS = 240;
/** Width of a path over the map, px. */
const ROUTE = 4;
/** Half the distance of the two directions of a link, px. */
const BESIDE = 2.5;

/** Draws what is inside the picture; everything else is left out before it costs anything. */
export function paint(context: CanvasRenderingContext2D, looks: Looks, camera: Camera, size: Size): Drawn {
  const brush = new Painter(context, looks, camera, size);
  context.clearRect(0, 0, size.width, size.height);
  brush.outlines();
  brush.lines();
  brush.routes();
  brush.boxes();
  brush.labels();
  return brush.drawn;
}

class Painter {
  readonly drawn: Drawn = { strokes: 0, lines: 0, boxes: 0, labels: 0, routes: 0 };
  private readonly taken = new Taken();
  private readonly placed: Placed[];
  private readonly beside: { x: number; y: number; text: string }[] = [];

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly looks: Looks,
    private readonly camera: Camera,
    private readonly size: Size,
  ) {
    this.placed = looks.items.flatMap((look) => {
      const box = this.onScreen(look.item);
      // Hosts stand below their node.
      return this.isInside(box, look.item.edge ? 60 : 0) ? [{ ...box, look }] : [];
    });
  }

  outlines(): void {
    const { context, looks } = this;
    for (const { outline, selected } of looks.outlines) {
      const box = this.onScreen(outline);
      if (!this.isInside(box)) continue;
      context.globalAlpha = 0.5;
      context.fillStyle = looks.theme.raised;
      this.rectangles([box], 8);
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = selected ? looks.theme.text : looks.theme.line;
      context.lineWidth = selected ? 2 : 1;
      context.stroke();
    }
  }

  lines(): void {
    const shown = this.looks.strokes.map((stroke) => ({
      stroke,
      lines: stroke.lines.flatMap((look) => this.segment(look) ?? []),
    }));
    const count = shown.reduce((sum, { lines }) => sum + lines.length, 0);
    const hair = count > MAX_BROAD;
    for (const { stroke, lines } of shown) if (lines.length > 0) this.strokeLines(stroke, lines, hair);
    this.context.globalAlpha = 1;
    if (count <= MAX_ARROWS)
      for (const { stroke, lines } of shown) for (const one of lines) this.arrow(one, stroke);
    this.context.globalAlpha = 1;
    this.drawn.lines = count;
  }

  /** Paths, each beside the links by itself, so that both are seen where they share one; the one before is dashed. */
  routes(): void {
    const { context, looks } = this;
    looks.routes.forEach((route, at) => {
      const aside = (at - (looks.routes.length - 1) / 2) * ROUTE * 2;
      context.strokeStyle = route.colour;
      context.lineWidth = ROUTE;
      context.lineCap = route.look === 'before' ? 'butt' : 'round';
      context.setLineDash(route.look === 'before' ? [3 * ROUTE, 2 * ROUTE] : []);
      for (let i = 0; i + 1 < route.items.length; i += 1) this.leg(route.items[i], route.items[i + 1], aside);
    });
    context.setLineDash([]);
    context.lineCap = 'butt';
    this.drawn.routes = looks.routes.filter(({ items }) => items.length > 1).length;
  }

  private leg(from: Box | undefined, to: Box | undefined, aside: number): void {
    if (!from || !to) return;
    const a = toScreen(this.camera, this.size, from.x, from.y);
    const b = toScreen(this.camera, this.size, to.x, to.y);
    const length = Math.max(1, Math.hypot(b.x - a.x, b.y - a.y));
    // To the same side in both directions of the link.
    const side = a.x < b.x || (a.x === b.x && a.y < b.y) ? aside : -aside;
    const [dx, dy] = [((b.y - a.y) / length) * side, ((a.x - b.x) / length) * side];
    this.context.beginPath();
    this.context.moveTo(a.x + dx, a.y + dy);
    this.context.lineTo(b.x + dx, b.y + dy);
    this.context.stroke();
  }

  boxes(): void {
    const { context, looks, placed } = this;
    const byFill = new Map<string, Placed[]>();
    for (const box of placed) byFill.set(box.look.fill, [...(byFill.get(box.look.fill) ?? []), box]);
    context.lineWidth = Math.min(2, 4 * this.camera.zoom);
    context.strokeStyle = looks.theme.panel;
    for (const [fill, boxes] of byFill) {
      context.fillStyle = fill;
      this.rectangles(boxes, 6);
      context.fill();
      context.stroke();
      this.drawn.strokes += 1;
    }
    this.rings(
      placed.filter(({ look }) => look.match && !look.selected),
      looks.theme.accent,
    );
    for (const only of ['before', 'after'] as const) {
      context.setLineDash(only === 'before' ? [6, 4] : []);
      this.rings(
        placed.filter(({ look }) => look.only === only && !look.selected),
        looks.theme[only],
      );
    }
    context.setLineDash([]);
    this.rings(
      placed.filter(({ look }) => look.selected),
      looks.theme.text,
    );
    this.drawn.boxes = placed.length;
  }

  /** Texts keep their size at every zoom; one that has no room is left out, the least important first. */
  labels(): void {
    const { context } = this;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (const { x, y, text } of this.beside) this.tag(text, x, y, 12, this.looks.theme.text);
    this.titles();
    const outside = this.placed.filter((box) => !this.inside(box));
    // Beside a box only what matters is written; the others get their names when they are enlarged.
    for (const box of outside) {
      if (this.drawn.labels >= MAX_LABELS) break;
      const { order, texts } = box.look;
      if (order > -BAD_ORDER) continue;
      this.tag(texts[0] ?? '', box.x, box.y - box.h / 2 - 10, 11, this.looks.theme.text);
    }
    for (const box of this.placed) this.hosts(box);
  }

  private onScreen({ x, y, w, h }: Box): Box {
    const { zoom } = this.camera;
    return { ...toScreen(this.camera, this.size, x, y), w: w * zoom, h: h * zoom };
  }

  private isInside({ x, y, w, h }: Box, below = 0): boolean {
    const { width, height } = this.size;
    return x + w / 2 > 0 && x - w / 2 < width && y + h / 2 + below > 0 && y - h / 2 < height;
  }

  /** The ends of a line on the screen; null if it cannot be seen. */
  private segment(look: LineLook): Segment | null {
    const { from, to, back } = look.line;
    const a = toScreen(this.camera, this.size, from.x, from.y);
    const b = toScreen(this.camera, this.size, to.x, to.y);
    const { width, height } = this.size;
    if (Math.max(a.x, b.x) < 0 || Math.min(a.x, b.x) > width) return null;
    if (Math.max(a.y, b.y) < 0 || Math.min(a.y, b.y) > height) return null;
    const length = Math.hypot(b.x - a.x, b.y - a.y);
    const aside = back && length > 0 ? (BESIDE * Math.min(1, this.camera.zoom * 1.5)) / length : 0;
    const [dx, dy] = [(b.y - a.y) * aside, (a.x - b.x) * aside];
    return { look, x1: a.x - dx, y1: a.y - dy, x2: b.x - dx, y2: b.y - dy, length };
  }

  private strokeLines(stroke: Stroke, lines: readonly Segment[], hair: boolean): void {
    const { context } = this;
    const width = hair ? 1 : Math.max(1, stroke.width * Math.min(1, this.camera.zoom * 1.5));
    context.beginPath();
    for (const { x1, y1, x2, y2 } of lines) {
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
    }
    if (stroke.selected) {
      context.globalAlpha = 0.35;
      context.strokeStyle = this.looks.theme.text;
      context.lineWidth = width + 8;
      context.stroke();
    }
    context.globalAlpha = stroke.opacity;
    context.strokeStyle = stroke.colour;
    context.lineWidth = width;
    context.stroke();
    this.drawn.strokes += 1;
    for (const one of lines) if (one.look.text !== '') this.beside.push(this.textPlace(one));
  }

  /** Where layers are, lines cross in the middle: beside its node a value is not mistaken for another link's. */
  private textPlace({ look, x1, y1, x2, y2, length }: Segment): { x: number; y: number; text: string } {
    const part = this.looks.scene.layered
      ? Math.min(0.5, (edgeOf(look.line.from, x1, y1, x2, y2, this.camera.zoom) + 24) / Math.max(1, length))
      : 0.5;
    return { x: x1 + (x2 - x1) * part, y: y1 + (y2 - y1) * part, text: look.text };
  }

  private arrow({ look, x1, y1, x2, y2, length }: Segment, { colour, width, opacity }: Stroke): void {
    const distance = edgeOf(look.line.to, x2, y2, x1, y1, this.camera.zoom);
    const long = (4 + width * 1.6) * Math.min(1, this.camera.zoom * 1.2);
    if (length < distance + 2 * long) return;
    const [ux, uy] = [(x1 - x2) / length, (y1 - y2) / length];
    const [x, y] = [x2 + ux * distance, y2 + uy * distance];
    const [bx, by] = [x + ux * long, y + uy * long];
    const { context } = this;
    context.globalAlpha = opacity;
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(bx - uy * long * 0.55, by + ux * long * 0.55);
    context.lineTo(bx + uy * long * 0.55, by - ux * long * 0.55);
    context.fill();
  }

  private rectangles(boxes: readonly Box[], radius: number): void {
    const { context } = this;
    context.beginPath();
    for (const { x, y, w, h } of boxes) {
      const [left, top] = [x - w / 2, y - h / 2];
      if (w < 12) context.rect(left, top, Math.max(2, w), Math.max(2, h));
      else context.roundRect(left, top, w, h, Math.min(radius, radius * this.camera.zoom));
    }
  }

  private rings(boxes: readonly Placed[], tint: string): void {
    if (boxes.length === 0) return;
    const { context } = this;
    const large = boxes.map(({ x, y, w, h }) => ({ x, y, w: Math.max(8, w) + 3, h: Math.max(8, h) + 3 }));
    context.strokeStyle = tint;
    context.lineWidth = 3;
    this.rectangles(large, 7);
    context.stroke();
  }

  /** Writes into the box what fits. Returns whether there was room for a name. */
  private inside({ look, x, y, w, h }: Placed): boolean {
    const { context } = this;
    const lines = Math.min(look.texts.length, Math.floor((h - 6) / 16));
    if (lines < 1 || w < 30) return false;
    const px = w < 80 ? 11 : 13;
    context.font = `600 ${px}px ${FONT}`;
    const measure = width(context);
    const first = measure(look.texts[0] ?? '') > w - 6 ? look.short : (look.texts[0] ?? '');
    const texts = [first, ...look.texts.slice(1, lines)].map((text) => shortened(text, w - 6, measure));
    if (texts[0] === '') return false;
    context.fillStyle = look.ink;
    texts.forEach((text, i) => {
      context.font = i === 2 ? `${px - 1}px ${FONT}` : `600 ${px}px ${FONT}`;
      context.fillText(text, x, y + (i - (lines - 1) / 2) * 17);
    });
    // Hosts and tags must not cover it.
    this.taken.take(x, y, w, h);
    this.drawn.labels += 1;
    return true;
  }

  /** Names of open groups, above their nodes. */
  private titles(): void {
    for (const { outline, text } of this.looks.outlines) {
      const box = this.onScreen(outline);
      if (!this.isInside(box)) continue;
      this.context.font = `600 12px ${FONT}`;
      const least = shortened(text, Math.max(90, box.w - 12), width(this.context));
      // In the room above the nodes, or over the rim if that is too narrow; in sight as long as the group is.
      const { zoom } = this.camera;
      const y = box.y - box.h / 2 + (TITLE * zoom < 18 ? -3 : (TITLE * zoom) / 2);
      this.tag(least, box.x, Math.max(12, y), 12, this.looks.theme.text);
    }
  }

  private tag(text: string, x: number, y: number, px: number, tint: string): boolean {
    const { context } = this;
    context.font = `600 ${px}px ${FONT}`;
    const wide = width(context)(text) + 6;
    if (text === '' || !this.taken.take(x, y, wide, px + 4)) return false;
    context.globalAlpha = 0.85;
    context.fillStyle = this.looks.theme.panel;
    context.fillRect(x - wide / 2, y - px / 2 - 2, wide, px + 4);
    context.globalAlpha = 1;
    context.fillStyle = tint;
    context.fillText(text, x, y);
    this.drawn.labels += 1;
    return true;
  }

  /** Up to four hosts stand below their node. */
  private hosts({ look, x, y, w, h }: Placed): void {
    if (look.hosts.length === 0 || look.faded || w < 44) return;
    const { context, looks } = this;
    const scale = this.camera.zoom;
    const shown = look.hosts.slice(0, MAX_HOSTS);
    const more = look.hosts.length - shown.length;
    const step = w / shown.length;
    const top = y + h / 2;
    context.strokeStyle = looks.theme.muted;
    context.fillStyle = looks.theme.muted;
    context.lineWidth = 1;
    context.beginPath();
    shown.forEach((_, i) => {
      const at = x + (i - (shown.length - 1) / 2) * step;
      context.moveTo(at, top);
      context.lineTo(at, top + 12 * scale);
    });
    context.stroke();
    context.beginPath();
    shown.forEach((_, i) => {
      const at = x + (i - (shown.length - 1) / 2) * step;
      context.moveTo(at + 3.5 * scale, top + 14 * scale);
      context.arc(at, top + 14 * scale, 3.5 * scale, 0, 2 * Math.PI);
    });
    context.fill();
    context.font = `11px ${FONT}`;
    shown.forEach((name, i) => {
      const at = x + (i - (shown.length - 1) / 2) * step;
      const text = i === shown.length - 1 && more > 0 ? `${name} +${more}` : name;
      if (this.drawn.labels < MAX_LABELS) this.tagHost(text, at, top + 20 * scale + 7, step);
    });
  }

  private tagHost(name: string, x: number, y: number, room: number): void {
    const { context } = this;
    const wide = width(context)(name);
    // A part of an address says nothing.
    if (wide > Math.max(40, room * 1.6) || !this.taken.take(x, y, wide + 2, 13)) return;
    context.fillStyle = this.looks.theme.muted;
    context.fillText(name, x, y);
    this.drawn.labels += 1;
  }
}

const MAX_HOSTS = 4;
/** Room above the nodes of an open group, as in the scene. */
const TITLE = 34;
/** Bad nodes, groups, and what is selected, found or on the path. */
const BAD_ORDER = 0.8;

interface Segment {
  look: LineLook;
  x1: number;
  y1: number;
  x2: number;
  y2: number;
  length: number;
}

/** Distance from the centre of a box to its side, towards a point, px. */
function edgeOf(box: Box, x: number, y: number, towardsX: number, towardsY: number, zoom: number): number {
  const length = Math.hypot(towardsX - x, towardsY - y);
  if (length === 0) return 0;
  const across = Math.abs(towardsX - x) / length;
  const down = Math.abs(towardsY - y) / length;
  return (
    zoom * Math.min(across === 0 ? Infinity : box.w / 2 / across, down === 0 ? Infinity : box.h / 2 / down)
  );
}

const widths = new Map<string, number>();
const MAX_WIDTHS = 4000;

/** Measures texts in the font that is set now; measuring is slow, so widths are remembered. */
function width(context: CanvasRenderingContext2D): (text: string) => number {
  const { font } = context;
  return (text) => {
    const key = font + text;
    const known = widths.get(key);
    if (known !== undefined) return known;
    if (widths.size >= MAX_WIDTHS) widths.clear();
    const measured = context.measureText(text).width;
    widths.set(key, measured);
    return measured;
  };
}
