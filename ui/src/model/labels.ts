/** Rectangles that texts have taken, so that none covers another one. */
export class Taken {
  private readonly boxes: { left: number; top: number; right: number; bottom: number }[] = [];

  /** Takes the rectangle around this centre unless something is there. */
  take(x: number, y: number, width: number, height: number): boolean {
    const mine = { left: x - width / 2, top: y - height / 2, right: x + width / 2, bottom: y + height / 2 };
    const covers = this.boxes.some(
      (box) =>
        box.left < mine.right && mine.left < box.right && box.top < mine.bottom && mine.top < box.bottom,
    );
    if (!covers) this.boxes.push(mine);
    return !covers;
  }
}

/** The text, or as much of it as fits with an ellipsis; empty if that is less than three characters. */
export function shortened(text: string, width: number, measure: (text: string) => number): string {
  const whole = measure(text);
  if (whole <= width) return text;
  let length = Math.floor((text.length * width) / whole);
  while (length > 0 && measure(`${text.slice(0, length)}…`) > width) length -= 1;
  return length < 3 ? '' : `${text.slice(0, length)}…`;
}
