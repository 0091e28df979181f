interface Point {
  x: number;
  y: number;
}

export interface Gestures {
  move(dx: number, dy: number): void;
  /** What is at this point stays there. */
  zoom(factor: number, at: Point): void;
  click(at: Point): void;
  /** Returns whether the key was used. */
  key(event: KeyboardEvent): boolean;
  /** The pointer is here; null: it has left. */
  over(at: Point | null): void;
}

/** A pointer that moves less than this was a click, px. */
const CLICK = 4;

/** Dragging, pinching, the wheel, clicks and keys on the map. Returns a function that ends them. */
export function gestures(element: HTMLElement, to: Gestures): () => void {
  const end = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(
    name: K,
    handler: (event: HTMLElementEventMap[K]) => void,
    options: AddEventListenerOptions = {},
  ): void => element.addEventListener(name, handler, { ...options, signal: end.signal });
  const pointers = new Pointers(element, to);
  on('pointerdown', (event) => pointers.down(event));
  on('pointermove', (event) => pointers.move(event));
  on('pointerup', (event) => pointers.up(event, true));
  on('pointercancel', (event) => pointers.up(event, false));
  on('pointerleave', () => to.over(null));
  on(
    'wheel',
    (event) => {
      event.preventDefault();
      // Some browsers count lines instead of pixels. A pinch on a touch pad comes with Ctrl and small steps.
      const step = event.deltaY * (event.deltaMode === 1 ? 16 : 1) * (event.ctrlKey ? 6 : 1);
      to.zoom(Math.exp(-Math.min(200, Math.max(-200, step)) / 500), placeOf(event, element));
    },
    { passive: false },
  );
  on('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to.key(event)) event.preventDefault();
  });
  return () => end.abort();
}

function placeOf(event: MouseEvent, element: HTMLElement): Point {
  const { left, top } = element.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

/** One pointer drags, two pinch. */
class Pointers {
  private readonly pressed = new Map<number, Point>();
  private travelled = 0;

  constructor(
    private readonly element: HTMLElement,
    private readonly to: Gestures,
  ) {}

  down(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.element.setPointerCapture(event.pointerId);
    if (this.pressed.size === 0) this.travelled = 0;
    this.pressed.set(event.pointerId, placeOf(event, this.element));
  }

  move(event: PointerEvent): void {
    const now = placeOf(event, this.element);
    const before = this.pressed.get(event.pointerId);
    if (!before) return this.to.over(now);
    this.travelled += Math.hypot(now.x - before.x, now.y - before.y);
    const other = [...this.pressed].find(([id]) => id !== event.pointerId)?.[1];
    this.pressed.set(event.pointerId, now);
    if (other) {
      const apart = (a: Point): number => Math.max(1, Math.hypot(a.x - other.x, a.y - other.y));
      const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      this.to.move((now.x - before.x) / 2, (now.y - before.y) / 2);
      this.to.zoom(apart(now) / apart(before), middle);
    } else if (this.travelled > CLICK) this.to.move(now.x - before.x, now.y - before.y);
  }

  up(event: PointerEvent, clicked: boolean): void {
    if (!this.pressed.delete(event.pointerId)) return;
    if (clicked && this.pressed.size === 0 && this.travelled <= CLICK)
      this.to.click(placeOf(event, this.element));
  }
}
