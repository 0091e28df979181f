import { dictionary } from '../lib/dictionary';
import type { PathUse } from '../api/types';
import { h } from '../lib/dom';
import { onTheme } from '../lib/theme';
import { fit, moved, toNetwork, zoomAt, type Camera, type Size } from '../model/camera';
import { findFabric, MAX_PLAIN, type Fabric } from '../model/fabric';
import { NO_PLACES, type Places } from '../model/places';
import { arrange, type Arrangement, type Positions } from '../model/layout';
import { groupedScene, plainScene, type Box, type Item, type Scene } from '../model/scene';
import {
  edgeValue,
  nodeValues,
  scaleFor,
  type Graph,
  type GraphEdge,
  type MapMetric,
  type Scale,
} from '../model/topology';
import { gestures } from './topology-gestures';
import { paint, type Drawn } from './topology-paint';
import { looksOf, type Looks, type Picture, type Selection } from './topology-style';

/** Narrower than this, nodes show their number only and stand closer. */
const COMPACT_BELOW = 560;
/** With more lines than this, a picture larger than the box is kept, and moved while the map is dragged. */
const MAX_REDRAWN = 100;
/** How much larger on each side, as a part of the box. */
const SPARE = 0.35;
/** After the last movement, everything is drawn again. */
const SETTLE_MS = 140;
/** How near to a line a click must be, px. */
const NEAR = 7;

/** What was clicked, or chosen with a key. */
export interface Choice {
  selected: Selection | null;
  /** A step for the back button. */
  step: boolean;
}

export interface CanvasOptions {
  choose(choice: Choice): void;
  /** Opens or closes a group. */
  toggle(group: string): void;
}

/** The drawing of the network. */
export class TopologyCanvas {
  readonly element: HTMLElement;
  fabric: Fabric | null = null;
  private readonly canvas = h('canvas');
  private readonly kept = document.createElement('canvas');
  private readonly scales = new Map<MapMetric, Scale>();
  private readonly observer = new ResizeObserver(() => this.resized());
  private readonly endTheme: () => void;
  private readonly endGestures: () => void;
  private graph: Graph | null = null;
  private places: Places = NO_PLACES;
  private arranged: Arrangement = { shape: 'free', positions: new Map() };
  private scene: Scene | null = null;
  private sceneKey = '';
  private open: ReadonlySet<string> = new Set();
  private picture: Picture | null = null;
  private looks: Looks | null = null;
  private camera: Camera = { x: 0, y: 0, zoom: 1 };
  /** Somebody has moved the picture: it stays where it is. */
  private placed = false;
  /** Where the camera was when the kept picture was drawn. */
  private keptAt: Camera | null = null;
  private frame = 0;
  private settle: ReturnType<typeof setTimeout> | undefined;
  private moving = false;
  private first = true;

  constructor(private readonly options: CanvasOptions) {
    const label =
      'Map of the network. Arrow keys go from node to node, Enter opens or closes a group, plus and minus zoom, 0 shows everything, Shift with arrows moves the map. The list of nodes has the same information.';
    this.element = h(
      'div',
      { class: 'canvas', role: 'application', tabindex: '0', aria: { label } },
      this.canvas,
    );
    this.endGestures = gestures(this.element, {
      move: (dx, dy) => this.look(moved(this.camera, dx, dy)),
      zoom: (factor, at) => this.zoom(factor, at),
      click: (at) => this.click(at),
      key: (event) => this.key(event),
      over: (at) => this.over(at),
    });
    this.observer.observe(this.element);
    // At once: what is drawn may be saved before the next frame.
    this.endTheme = onTheme(() => this.resized());
  }

  /**
   * Finds layers and groups and arranges nodes, only if nodes or links were added or removed or the inventory has changed,
   * so that the picture does not move.
   */
  arrange(graph: Graph, paths: readonly PathUse[], places: Places, open: ReadonlySet<string>): void {
    if (graph.shape !== this.graph?.shape || places !== this.places) {
      const grouped = graph.nodes.length > MAX_PLAIN;
      this.fabric = grouped ? findFabric(graph, paths, places) : null;
      this.arranged = grouped ? { shape: 'free', positions: new Map() } : arrange(graph, paths);
      this.sceneKey = '';
    }
    this.graph = graph;
    this.places = places;
    this.open = open;
    this.build();
  }

  /** Colours, highlights. Returns the scale that was used. */
  draw(picture: Picture): Scale {
    this.picture = picture;
    const { graph, metric } = picture;
    const values = [
      ...nodeValues(graph, metric).values(),
      ...graph.edges.map((edge) => edgeValue(edge.link, metric)),
    ];
    const scale = scaleFor(metric, values, this.scales.get(metric) ?? null);
    this.scales.set(metric, scale);
    if (this.scene) this.looks = looksOf(this.scene, picture, scale, this.isCompact());
    this.keptAt = this.moving ? this.keptAt : null;
    this.invalidate();
    return scale;
  }

  /** Shows the whole network. */
  fit(): void {
    this.placed = false;
    if (this.scene) this.show(this.scene.bounds);
  }

  zoom(factor: number, at = { x: this.size().width / 2, y: this.size().height / 2 }): void {
    if (this.scene) this.look(zoomAt(this.camera, factor, at, this.size(), this.scene.bounds));
  }

  /** Brings a node or a group into the middle, large enough to be read. */
  reveal(selected: Selection): void {
    const box = this.boxOf(selected);
    if (!box) return;
    // A small network can be seen whole: it moves only if somebody has moved the node out of sight.
    if (!this.fabric) return this.follow(box);
    const outline = 'group' in selected && this.open.has(selected.group);
    const near = fit(box, this.size());
    this.placed = true;
    this.look(outline ? near : { x: box.x, y: box.y, zoom: Math.max(this.camera.zoom, 1) });
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settle);
    this.observer.disconnect();
    this.endTheme();
    this.endGestures();
  }

  private boxOf(selected: Selection): Box | null {
    if ('group' in selected) {
      const outline = this.scene?.outlines.find(({ group }) => group.id === selected.group);
      return outline ?? this.scene?.items.find(({ group }) => group?.id === selected.group) ?? null;
    }
    return this.scene?.itemOf.get('node' in selected ? selected.node : selected.from) ?? null;
  }

  /** Makes the scene, unless what it depends on is as it was. */
  private build(): void {
    const { width, height } = this.size();
    if (!this.graph || width === 0) return;
    const open = [...this.open].sort().join();
    const key = [this.graph.shape, open, this.isCompact(), this.fabric ? '' : `${width}x${height}`].join('|');
    if (key === this.sceneKey) {
      if (this.scene) relink(this.scene, this.graph);
      return;
    }
    this.sceneKey = key;
    this.scene = this.fabric
      ? groupedScene(this.graph, this.fabric, this.open, width / Math.max(1, height))
      : this.plain(this.graph);
    this.keptAt = null;
    if (!this.placed) this.show(this.scene.bounds);
  }

  private plain(graph: Graph): Scene {
    const { positions, shape } = this.arranged;
    const compact = this.isCompact();
    const squeeze = compact ? 0.55 : 1;
    const stretch = shape === 'tiers' ? stretchFor(this.element, positions, squeeze) : 1;
    return plainScene(graph, this.arranged, { compact, squeeze, stretch });
  }

  private show(box: Box): void {
    this.camera = fit(box, this.size());
    this.keptAt = null;
    this.invalidate();
  }

  /** Moves the camera; the map is drawn in full when it rests. */
  private look(camera: Camera): void {
    this.camera = camera;
    this.placed = true;
    this.moving = true;
    clearTimeout(this.settle);
    this.settle = setTimeout(() => {
      this.moving = false;
      this.keptAt = null;
      this.invalidate();
    }, SETTLE_MS);
    this.invalidate();
  }

  private size(): Size {
    return { width: this.element.clientWidth, height: this.element.clientHeight };
  }

  private isCompact(): boolean {
    const { clientWidth } = this.element;
    return clientWidth > 0 && clientWidth < COMPACT_BELOW;
  }

  private resized(): void {
    this.build();
    this.keptAt = null;
    if (!this.placed && this.scene) this.show(this.scene.bounds);
    this.redraw();
    // A canvas whose size changes is empty until it is drawn.
    this.paintNow();
  }

  private redraw(): void {
    if (this.picture) this.draw(this.picture);
  }

  private invalidate(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paintNow());
  }

  private paintNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { looks } = this;
    const size = this.size();
    const context = sized(this.canvas, size);
    if (!looks || !context || size.width === 0) return;
    if (looks.scene.lines.length <= MAX_REDRAWN) this.report(paint(context, looks, this.camera, size));
    else this.paintKept(context, looks, size);
    if (this.first && looks.items.length > 0) {
      this.first = false;
      performance.mark('topology-first-picture');
    }
  }

  /** A heavy picture: drawn with room around, and only moved as long as the map moves. */
  private paintKept(context: CanvasRenderingContext2D, looks: Looks, size: Size): void {
    const room = { width: size.width * (1 + 2 * SPARE), height: size.height * (1 + 2 * SPARE) };
    if (!this.keptAt || (this.moving && !this.covers(this.keptAt, size))) {
      const kept = sized(this.kept, room);
      if (!kept) return;
      this.report(paint(kept, looks, this.camera, room));
      this.keptAt = this.camera;
    }
    const scale = this.camera.zoom / this.keptAt.zoom;
    const [w, h] = [room.width * scale, room.height * scale];
    const x = size.width / 2 + (this.keptAt.x - this.camera.x) * this.camera.zoom - w / 2;
    const y = size.height / 2 + (this.keptAt.y - this.camera.y) * this.camera.zoom - h / 2;
    context.clearRect(0, 0, size.width, size.height);
    context.drawImage(this.kept, x, y, w, h);
  }

  /** Whether the kept picture fills the box, not blurred much. */
  private covers(kept: Camera, { width, height }: Size): boolean {
    const scale = this.camera.zoom / kept.zoom;
    if (scale > 2 || scale < 0.5) return false;
    const spare = (side: number): number => (side * ((1 + 2 * SPARE) * scale - 1)) / 2;
    const whole = scale < 1 / (1 + 2 * SPARE);
    return (
      whole ||
      (Math.abs(this.camera.x - kept.x) * this.camera.zoom <= spare(width) &&
        Math.abs(this.camera.y - kept.y) * this.camera.zoom <= spare(height))
    );
  }

  private report(drawn: Drawn): void {
    for (const [name, value] of Object.entries(drawn)) this.element.dataset[name] = String(value);
  }

  private click(at: { x: number; y: number }): void {
    const hit = this.hit(at);
    if (hit && 'group' in hit) return this.options.toggle(hit.group);
    this.options.choose({ selected: hit, step: true });
  }

  private over(at: { x: number; y: number } | null): void {
    const hit = at && this.hit(at);
    this.element.classList.toggle('pointed', hit !== null);
  }

  /** What is at a pixel: an item, the upper rim of an open group, or a line. */
  private hit({ x, y }: { x: number; y: number }): Selection | null {
    const { scene } = this;
    if (!scene) return null;
    const at = toNetwork(this.camera, this.size(), x, y);
    const { zoom } = this.camera;
    const item = scene.items.find((one) => within(one, at, 3 / zoom));
    if (item) return selectionOf(item);
    const rim = scene.outlines.find((one) =>
      within({ ...one, y: one.y - one.h / 2 + 15, h: 36 / Math.min(1, zoom) }, at, 0),
    );
    if (rim) return { group: rim.group.id };
    let nearest: { distance: number; selected: Selection } | null = null;
    for (const { from, to, edges } of scene.lines) {
      const distance = distanceTo(from, to, at) * zoom;
      if (distance >= (nearest?.distance ?? NEAR)) continue;
      const edge = this.worst(edges);
      if (edge) nearest = { distance, selected: { from: edge.from, to: edge.to } };
    }
    return nearest?.selected ?? null;
  }

  /** Of links that are drawn as one line. */
  private worst(edges: readonly GraphEdge[]): GraphEdge | undefined {
    const metric = this.picture?.metric ?? 'latency';
    const value = ({ link }: GraphEdge): number => edgeValue(link, metric) ?? -1;
    return [...edges].sort((a, b) => value(b) - value(a))[0];
  }

  /** Returns whether the key means something here. */
  private key(event: KeyboardEvent): boolean {
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) this.look(moved(this.camera, -60 * arrow.x, -60 * arrow.y));
    else if (arrow) this.step(arrow);
    else if (event.key === '+' || event.key === '=') this.zoom(1.3);
    else if (event.key === '-') this.zoom(1 / 1.3);
    else if (event.key === '0') this.fit();
    else if (event.key === 'Enter' || event.key === ' ') return this.enter();
    else if (event.key === 'Escape') this.options.choose({ selected: null, step: false });
    else return false;
    return true;
  }

  private enter(): boolean {
    const selected = this.picture?.selected ?? null;
    if (!selected || !this.fabric || 'from' in selected) return false;
    const group = 'group' in selected ? selected.group : this.fabric.groupOf.get(selected.node);
    if (group !== undefined) this.options.toggle(group);
    return true;
  }

  /** Selects the nearest item in a direction; the first one if none is selected. */
  private step(direction: { x: number; y: number }): void {
    const { scene } = this;
    const selected = this.picture?.selected ?? null;
    if (!scene) return;
    const from = selected && this.boxOf(selected);
    const to = from ? nextItem(scene.items, from, direction) : scene.items[0];
    if (!to) return;
    this.options.choose({ selected: selectionOf(to), step: false });
    this.follow(to);
  }

  /** Moves the map if this is outside of it. */
  private follow(box: Box): void {
    const { width, height } = this.size();
    const { zoom } = this.camera;
    const [dx, dy] = [(box.x - this.camera.x) * zoom, (box.y - this.camera.y) * zoom];
    if (Math.abs(dx) > width / 2 - 20 || Math.abs(dy) > height / 2 - 20)
      this.look({ x: box.x, y: box.y, zoom });
  }
}

const ARROWS = dictionary<{ x: number; y: number }>({
  ArrowRight: { x: 1, y: 0 },
  ArrowLeft: { x: -1, y: 0 },
  ArrowDown: { x: 0, y: 1 },
  ArrowUp: { x: 0, y: -1 },
});

function selectionOf({ node, group }: Item): Selection | null {
  if (group) return { group: group.id };
  return node === null ? null : { node };
}

/** The nearest in a direction: distance aside counts more than distance ahead. */
function nextItem(items: readonly Item[], from: Box, direction: { x: number; y: number }): Item | null {
  let best: { cost: number; item: Item } | null = null;
  for (const item of items) {
    const [dx, dy] = [item.x - from.x, item.y - from.y];
    const ahead = dx * direction.x + dy * direction.y;
    const aside = Math.abs(dx * direction.y) + Math.abs(dy * direction.x);
    if (ahead <= 1) continue;
    const cost = ahead + 2.5 * aside;
    if (cost < (best?.cost ?? Infinity)) best = { cost, item };
  }
  return best?.item ?? null;
}

function within({ x, y, w, h }: Box, at: { x: number; y: number }, margin: number): boolean {
  return Math.abs(at.x - x) <= w / 2 + margin && Math.abs(at.y - y) <= h / 2 + margin;
}

function distanceTo(a: Box, b: Box, at: { x: number; y: number }): number {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const square = dx * dx + dy * dy;
  const part = square === 0 ? 0 : Math.min(1, Math.max(0, ((at.x - a.x) * dx + (at.y - a.y) * dy) / square));
  return Math.hypot(at.x - a.x - part * dx, at.y - a.y - part * dy);
}

/** Gives the lines of a scene the values of a new answer about the same network. */
function relink(scene: Scene, graph: Graph): void {
  const fresh = new Map(graph.edges.map((edge) => [edge.id, edge]));
  for (const line of scene.lines) line.edges = line.edges.map((edge) => fresh.get(edge.id) ?? edge);
}

/** The pixels of a canvas, as many as the screen has. */
function sized(canvas: HTMLCanvasElement, { width, height }: Size): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext('2d');
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Factor on the distance of tiers that gives the picture the aspect ratio of its box. */
function stretchFor(box: HTMLElement, positions: Positions, squeeze: number): number {
  const points = [...positions.values()];
  const extent = (values: number[]): number => Math.max(...values) - Math.min(...values);
  const width = extent(points.map(({ x }) => x)) * squeeze + 120;
  const height = extent(points.map(({ y }) => y));
  if (height === 0 || box.clientWidth === 0) return 1;
  return Math.min(2, Math.max(0.7, ((width * box.clientHeight) / box.clientWidth - 120) / height));
}
