import { colour, inLight } from './theme';

/** What stands above and below a drawing. */
export interface Caption {
  title: string;
  /** Below the title: the range. */
  lines: string[];
  /** Below the drawing: what is not in it. */
  notes: string[];
}

const MARGIN = 16;
const LINE = 16;
const ROW = 18;
const SANS = "system-ui, 'Liberation Sans', sans-serif";
const NARROWEST = 480;
/** Rows of a table that a picture has. */
const MAX_ROWS = 200;
const WIDEST_CELL = 420;
/** Browsers refuse canvases with longer sides, device pixels. */
const LONGEST_SIDE = 16_000;

type Legend = { colour: string; text: string }[];

/** Something drawn: a copy of its pixels or a way to draw it, and its size in CSS pixels. */
interface Part {
  width: number;
  height: number;
  draw(context: CanvasRenderingContext2D, x: number, y: number): void;
}

/** The drawings in an element as PNG: in light colours, with title, range and legend. */
export async function chartPng(element: HTMLElement, caption: Caption): Promise<Blob> {
  return blobOf(
    await inLight(() => {
      const drawings = [...element.querySelectorAll<HTMLCanvasElement | SVGSVGElement>('canvas, svg')];
      const parts = [...scales(element), ...drawings.filter(isDrawing).map(partOf)];
      return compose(parts, legendOf(element), caption);
    }),
  );
}

/** Whether an element has drawings that can be saved. */
export function hasDrawing(element: HTMLElement): boolean {
  return [...element.querySelectorAll<HTMLCanvasElement | SVGSVGElement>('canvas, svg')].some(isDrawing);
}

/** A table as PNG. */
export async function tablePng(
  table: { heads: string[]; rows: string[][]; numeric: boolean[] },
  caption: Caption,
): Promise<Blob> {
  const left = table.rows.length - MAX_ROWS;
  const notes = left > 0 ? [`The first ${MAX_ROWS} of ${table.rows.length} rows; the CSV has all.`] : [];
  return blobOf(
    await inLight(() =>
      compose([tablePart(table.heads, table.rows.slice(0, MAX_ROWS), table.numeric)], [], {
        ...caption,
        notes: [...notes, ...caption.notes],
      }),
    ),
  );
}

function blobOf(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error('this picture is too large'))),
      'image/png',
    ),
  );
}

/** Not hidden, not decoration, and no small mark in a text. */
function isDrawing(element: HTMLCanvasElement | SVGSVGElement): boolean {
  if (element.closest('[aria-hidden="true"]')) return false;
  const { width, height } = element.getBoundingClientRect();
  return width >= 100 && height >= 40;
}

function partOf(element: HTMLCanvasElement | SVGSVGElement): Part {
  const { width, height } = element.getBoundingClientRect();
  if (element instanceof SVGSVGElement)
    return { width, height, draw: (context, x, y) => paintSvg(context, element, x, y) };
  return { width, height, draw: (context, x, y) => context.drawImage(element, x, y, width, height) };
}

/** What the swatches of a panel stand for. */
function legendOf(element: HTMLElement): Legend {
  const routes = [...element.querySelectorAll<HTMLElement>('.path-legend .route')].map((route) => ({
    colour: getComputedStyle(route).borderTopColor,
    text: route.parentElement?.textContent?.trim() ?? '',
  }));
  const swatches = [
    ...element.querySelectorAll<HTMLElement>('.legend .swatch, .chart-legend .swatch'),
  ].flatMap((swatch) => {
    const style = getComputedStyle(swatch);
    const text = swatch.parentElement?.textContent?.trim() ?? '';
    const isLine = swatch.classList.contains('line');
    const shown = isLine ? style.borderTopColor : style.backgroundColor;
    return swatch.parentElement?.childElementCount === 1 ? [{ colour: shown, text }] : [];
  });
  return [...swatches, ...routes];
}

/** The colours of values: of a heat map, of a topology. */
function scales(element: HTMLElement): Part[] {
  const texts = (list: Iterable<Element>): string[] => [...list].map((one) => one.textContent?.trim() ?? '');
  const heats = [...element.querySelectorAll('.legend')].filter(
    (legend) => legend.querySelectorAll(':scope > .swatch').length > 2,
  );
  const maps = [...element.querySelectorAll('.map-legend')];
  return [
    ...heats.map((legend) => {
      const [unit = '', end = ''] = texts(legend.querySelectorAll(':scope > span'));
      return scalePart(unit.replace(/:$/, ''), ['0', end]);
    }),
    ...maps.map((legend) =>
      scalePart(
        texts(legend.querySelectorAll('.legend-title')).join(),
        texts(legend.querySelectorAll('.ticks span')),
      ),
    ),
  ];
}

/** A ramp with the values of its ends, or of places at equal distances. */
function scalePart(title: string, ticks: readonly string[]): Part {
  const width = NARROWEST;
  const draw = (context: CanvasRenderingContext2D, x: number, y: number): void => {
    context.textBaseline = 'top';
    context.font = `12px ${SANS}`;
    context.fillStyle = colour('text');
    context.fillText(title, x, y);
    const ramp = context.createLinearGradient(x, 0, x + width, 0);
    for (let i = 0; i < 5; i += 1) ramp.addColorStop(i / 4, colour(`ramp-${i + 1}`));
    context.fillStyle = ramp;
    context.fillRect(x, y + LINE, width, 8);
    context.fillStyle = colour('muted');
    ticks.forEach((tick, i) => {
      context.textAlign = i === 0 ? 'left' : i === ticks.length - 1 ? 'right' : 'center';
      context.fillText(tick, x + (width * i) / Math.max(1, ticks.length - 1), y + LINE + 10);
    });
    context.textAlign = 'left';
  };
  return { width, height: 2 * LINE + 12, draw };
}

function compose(parts: readonly Part[], legend: Legend, caption: Caption): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  if (!context) throw new Error('this browser cannot draw');
  const inner = Math.max(NARROWEST, ...parts.map(({ width }) => width));
  context.font = `12px ${SANS}`;
  const rows = legendRows(context, legend, inner);
  const [lines, notes] = [caption.lines, caption.notes].map((texts) => wrapped(context, texts, inner));
  const head = 26 + (lines?.length ?? 0) * LINE + rows.length * LINE + 10;
  const body = parts.reduce((sum, { height }) => sum + height + 8, 0);
  const foot = (notes?.length ?? 0) * LINE;
  const [width, height] = [inner + 2 * MARGIN, head + body + foot + 2 * MARGIN];
  const scale = Math.min(devicePixelRatio, LONGEST_SIDE / Math.max(width, height));
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  context.scale(scale, scale);
  context.fillStyle = '#ffffff';
  context.fillRect(0, 0, width, height);
  context.textBaseline = 'top';
  let y = MARGIN;
  write(context, `600 16px ${SANS}`, colour('text'), [caption.title], y);
  y += 26;
  write(context, `12px ${SANS}`, colour('muted'), lines ?? [], y);
  y += (lines?.length ?? 0) * LINE;
  for (const row of rows) {
    for (const { x, entry } of row) {
      context.fillStyle = entry.colour;
      context.fillRect(MARGIN + x, y + 2, 9, 9);
      context.fillStyle = colour('text');
      context.fillText(entry.text, MARGIN + x + 14, y);
    }
    y += LINE;
  }
  y += 10;
  for (const part of parts) {
    context.save();
    part.draw(context, MARGIN, y);
    context.restore();
    y += part.height + 8;
  }
  context.textBaseline = 'top';
  write(context, `12px ${SANS}`, colour('muted'), notes ?? [], y);
  return canvas;
}

function write(
  context: CanvasRenderingContext2D,
  font: string,
  fill: string,
  lines: readonly string[],
  y: number,
): void {
  context.font = font;
  context.fillStyle = fill;
  lines.forEach((line, i) => context.fillText(line, MARGIN, y + i * LINE));
}

function legendRows(
  context: CanvasRenderingContext2D,
  legend: Legend,
  width: number,
): { x: number; entry: Legend[number] }[][] {
  const rows: { x: number; entry: Legend[number] }[][] = [];
  let x = Infinity;
  for (const entry of legend) {
    const needs = context.measureText(entry.text).width + 28;
    if (x + needs > width) {
      rows.push([]);
      x = 0;
    }
    rows[rows.length - 1]?.push({ x, entry });
    x += needs;
  }
  return rows;
}

/** Texts in lines that are not wider. */
function wrapped(context: CanvasRenderingContext2D, texts: readonly string[], width: number): string[] {
  return texts.flatMap((text) => {
    const lines: string[] = [];
    for (const word of text.split(' ')) {
      const last = lines[lines.length - 1];
      if (last !== undefined && context.measureText(`${last} ${word}`).width <= width)
        lines[lines.length - 1] = `${last} ${word}`;
      else lines.push(word);
    }
    return lines;
  });
}

function tablePart(heads: readonly string[], rows: readonly string[][], numeric: readonly boolean[]): Part {
  const context = document.createElement('canvas').getContext('2d');
  if (context) context.font = `12px ${SANS}`;
  const measure = (text: string): number => Math.min(WIDEST_CELL, context?.measureText(text).width ?? 0);
  const widths = heads.map(
    (head, i) => Math.max(...[head, ...rows.map((row) => row[i] ?? '')].map(measure)) + 18,
  );
  const width = widths.reduce((sum, one) => sum + one, 0);
  const draw = (target: CanvasRenderingContext2D, left: number, top: number): void => {
    target.font = `12px ${SANS}`;
    target.textBaseline = 'middle';
    [heads, ...rows].forEach((row, at) => {
      const y = top + at * ROW;
      let x = left;
      target.fillStyle = at === 0 ? colour('muted') : colour('text');
      widths.forEach((cell, i) => {
        target.save();
        target.beginPath();
        target.rect(x, y, cell - 6, ROW);
        target.clip();
        target.textAlign = numeric[i] ? 'right' : 'left';
        target.fillText(row[i] ?? '', numeric[i] ? x + cell - 10 : x, y + ROW / 2);
        target.restore();
        x += cell;
      });
      target.fillStyle = colour('line');
      target.fillRect(left, y + ROW - 1, width, 1);
    });
    target.textAlign = 'left';
  };
  return { width, height: (rows.length + 1) * ROW, draw };
}

/**
 * Draws an SVG as it is shown: shapes and texts with their computed colours. (An image of it would need a content policy that
 * allows images from the page itself.)
 */
function paintSvg(context: CanvasRenderingContext2D, svg: SVGSVGElement, x: number, y: number): void {
  const box = svg.getBoundingClientRect();
  const base = context.getTransform();
  for (const element of svg.querySelectorAll<SVGGraphicsElement>('rect, path, line, circle, text')) {
    const style = getComputedStyle(element);
    if (style.display === 'none' || style.visibility === 'hidden') continue;
    const matrix = element.getScreenCTM();
    if (!matrix) continue;
    const own = new DOMMatrix([
      matrix.a,
      matrix.b,
      matrix.c,
      matrix.d,
      matrix.e - box.x + x,
      matrix.f - box.y + y,
    ]);
    context.setTransform(base.multiply(own));
    context.globalAlpha = Number(style.opacity);
    if (element instanceof SVGTextElement) paintText(context, element, style);
    else paintShape(context, pathOf(element), style);
  }
  context.setTransform(base);
  context.globalAlpha = 1;
}

function paintShape(context: CanvasRenderingContext2D, path: Path2D, style: CSSStyleDeclaration): void {
  const alpha = context.globalAlpha;
  if (isColour(style.fill)) {
    context.globalAlpha = alpha * Number(style.fillOpacity);
    context.fillStyle = style.fill;
    context.fill(path);
  }
  if (isColour(style.stroke)) {
    context.globalAlpha = alpha * Number(style.strokeOpacity);
    context.strokeStyle = style.stroke;
    context.lineWidth = parseFloat(style.strokeWidth) || 1;
    context.stroke(path);
  }
}

function paintText(
  context: CanvasRenderingContext2D,
  element: SVGTextElement,
  style: CSSStyleDeclaration,
): void {
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = isColour(style.fill) ? style.fill : colour('text');
  context.textAlign =
    style.textAnchor === 'middle' ? 'center' : style.textAnchor === 'end' ? 'right' : 'left';
  context.textBaseline = ['middle', 'central'].includes(style.dominantBaseline) ? 'middle' : 'alphabetic';
  const [at] = [element.x.baseVal, element.y.baseVal].map((list) => (list.numberOfItems > 0 ? list : null));
  const x = at ? at.getItem(0).value : 0;
  const y = element.y.baseVal.numberOfItems > 0 ? element.y.baseVal.getItem(0).value : 0;
  // `dy` is a common way to centre a line.
  const dy = element.dy.baseVal.numberOfItems > 0 ? element.dy.baseVal.getItem(0).value : 0;
  context.fillText(element.textContent ?? '', x, y + dy);
  context.textAlign = 'left';
}

function pathOf(element: SVGGraphicsElement): Path2D {
  if (element instanceof SVGPathElement) return new Path2D(element.getAttribute('d') ?? '');
  const path = new Path2D();
  if (element instanceof SVGRectElement) {
    const { x, y, width, height } = element;
    path.rect(x.baseVal.value, y.baseVal.value, width.baseVal.value, height.baseVal.value);
  } else if (element instanceof SVGLineElement) {
    const { x1, y1, x2, y2 } = element;
    path.moveTo(x1.baseVal.value, y1.baseVal.value);
    path.lineTo(x2.baseVal.value, y2.baseVal.value);
  } else if (element instanceof SVGCircleElement) {
    const { cx, cy, r } = element;
    path.arc(cx.baseVal.value, cy.baseVal.value, r.baseVal.value, 0, 2 * Math.PI);
  }
  return path;
}

function isColour(text: string): boolean {
  return text !== 'none' && text !== '' && !text.startsWith('url(');
}
