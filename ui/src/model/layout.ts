import type { PathUse } from '../api/types';
import { chain, neighbours, tiers, type Graph, type Neighbours } from './topology';

export interface Point {
  x: number;
  y: number;
}

export type Positions = Map<number, Point>;

const STEP_X = 170;
const STEP_Y = 190;
/** Room for a value between two nodes. */
const CHAIN_X = 240;

export type Shape = 'tiers' | 'chain' | 'free';

export interface Arrangement {
  shape: Shape;
  positions: Positions;
}

/** Positions of nodes. The same network always gives the same layout. */
export function arrange(graph: Graph, paths: readonly PathUse[]): Arrangement {
  const levels = tiers(graph, paths);
  if (levels) return { shape: 'tiers', positions: inTiers(graph, levels) };
  const order = chain(graph);
  if (order)
    return { shape: 'chain', positions: new Map(order.map((id, i) => [id, { x: i * CHAIN_X, y: 0 }])) };
  return { shape: 'free', positions: free(graph) };
}

function inTiers(graph: Graph, levels: ReadonlyMap<number, number>): Positions {
  const near = neighbours(graph);
  const top = Math.max(...levels.values());
  const positions: Positions = new Map();
  for (let level = 0; level <= top; level += 1) {
    const members = graph.nodes.map((node) => node.id).filter((id) => levels.get(id) === level);
    const key = (id: number): number =>
      level === 0 ? lowestAbove(id, near) : meanBelow(id, near, positions);
    members.sort((a, b) => key(a) - key(b) || a - b);
    spread(members, (top - level) * STEP_Y, widest(levels), positions);
  }
  return positions;
}

/** Brings leaves of one pod together: they share their lowest neighbour. */
function lowestAbove(id: number, near: Neighbours): number {
  return Math.min(...(near.get(id) ?? []), Infinity);
}

/** Mean x of the neighbours below, which are placed already, rounded so that nodes with equal neighbours are ordered by id. */
function meanBelow(id: number, near: Neighbours, positions: Positions): number {
  const below = [...(near.get(id) ?? [])].flatMap((other) => positions.get(other)?.x ?? []);
  return below.length === 0 ? 0 : Math.round(below.reduce((sum, x) => sum + x, 0) / below.length);
}

function widest(levels: ReadonlyMap<number, number>): number {
  const sizes = new Map<number, number>();
  for (const level of levels.values()) sizes.set(level, (sizes.get(level) ?? 0) + 1);
  return Math.max(...sizes.values());
}

/** A tier over the whole width, centred; short tiers are drawn apart so that links fan out. */
function spread(members: readonly number[], y: number, most: number, positions: Positions): void {
  const step = members.length >= most ? STEP_X : (STEP_X * most) / (members.length + 0.6);
  members.forEach((id, i) => positions.set(id, { x: (i - (members.length - 1) / 2) * step, y }));
}

/** Limit of node pairs computed in all rounds, so that a large network does not block the page. */
const MAX_PAIRS = 3e7;
const MAX_ROUNDS = 300;

/** A small spring layout: starts on a circle in the order of ids, without randomness. */
function free(graph: Graph): Positions {
  const ids = graph.nodes.map((node) => node.id);
  const radius = (STEP_X * Math.max(ids.length, 3)) / 6;
  const points = ids.map((_, i) => {
    const angle = (2 * Math.PI * i) / ids.length - Math.PI / 2;
    return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  });
  const index = new Map(ids.map((id, i) => [id, i]));
  const springs = graph.edges.map(({ from, to }) => [index.get(from) ?? 0, index.get(to) ?? 0] as const);
  const rounds = Math.min(MAX_ROUNDS, Math.ceil(MAX_PAIRS / Math.max(1, ids.length ** 2)));
  for (let round = 0; round < rounds; round += 1) relax(points, springs, 1 - round / rounds);
  return new Map(ids.map((id, i) => [id, points[i] ?? { x: 0, y: 0 }]));
}

function relax(points: Point[], springs: readonly (readonly [number, number])[], temperature: number): void {
  const moves = points.map(() => ({ x: 0, y: 0 }));
  const add = (i: number, j: number, force: (distance: number) => number): void => {
    const [a, b, move, other] = [points[i], points[j], moves[i], moves[j]];
    if (!a || !b || !move || !other) return;
    const dx = b.x - a.x;
    const dy = b.y - a.y;
    const distance = Math.max(1, Math.hypot(dx, dy));
    const f = force(distance) / distance;
    move.x += dx * f;
    move.y += dy * f;
    other.x -= dx * f;
    other.y -= dy * f;
  };
  points.forEach((_, i) => {
    for (let j = i + 1; j < points.length; j += 1) add(i, j, (distance) => -(STEP_X * STEP_X) / distance);
  });
  for (const [i, j] of springs) add(i, j, (distance) => (distance * distance) / STEP_X / 4);
  points.forEach((point, i) => {
    const move = moves[i] ?? { x: 0, y: 0 };
    const length = Math.max(1, Math.hypot(move.x, move.y));
    const step = Math.min(length, 20 * temperature + 0.5);
    point.x += (move.x / length) * step;
    point.y += (move.y / length) * step;
  });
}
