/** The last `capacity` points of several series over one time axis: bounded however long the page stays open. */
export class Ring {
  private times: number[] = [];
  private columns: (number | null)[][];

  constructor(
    series: number,
    private readonly capacity: number,
  ) {
    this.columns = Array.from({ length: series }, () => []);
  }

  get length(): number {
    return this.times.length;
  }

  /** Adds a point; one that is not newer than the last is ignored, so that a chart's time never runs back. */
  push(time: number, values: readonly (number | null)[]): void {
    const last = this.times[this.times.length - 1];
    if (last !== undefined && time <= last) return;
    this.times.push(time);
    this.columns.forEach((column, i) => column.push(values[i] ?? null));
    if (this.times.length > this.capacity) this.trim();
  }

  /** Inserts older points before the present ones. */
  prepend(points: readonly (readonly [number, readonly (number | null)[]])[]): void {
    const first = this.times[0] ?? Infinity;
    const older = points.filter(([time]) => time < first).sort((a, b) => a[0] - b[0]);
    this.times = [...older.map(([time]) => time), ...this.times];
    this.columns = this.columns.map((column, i) => [
      ...older.map(([, values]) => values[i] ?? null),
      ...column,
    ]);
    this.trim();
  }

  /** Times first, then each series, as uPlot takes them. */
  data(): [number[], ...(number | null)[][]] {
    return [this.times, ...this.columns];
  }

  private trim(): void {
    const excess = this.times.length - this.capacity;
    if (excess <= 0) return;
    this.times = this.times.slice(excess);
    this.columns = this.columns.map((column) => column.slice(excess));
  }
}
