import { dictionary } from '../lib/dictionary';

/** What the inventory says about where a node stands. */
export interface Place {
  layer: number | null;
  pod: string | null;
}

/** By node; nodes of which the inventory says nothing are missing. */
export type Places = ReadonlyMap<number, Place>;

export const NO_PLACES: Places = new Map();

const LAYERS = dictionary<number>({ leaf: 0, spine: 1, core: 2 });

/** From labels of devices: `leaf`, `spine`, `core` or `layer-3` is the layer, `pod-7` or another name after `pod-` the pod. */
export function placesOf(devices: readonly { node: number; labels: readonly string[] }[]): Places {
  const places = devices.map(({ node, labels }): [number, Place] => {
    const layers = labels.flatMap((label) => LAYERS[label] ?? /^layer-(\d)$/.exec(label)?.[1] ?? []);
    const pod = labels.find((label) => /^pod-./.test(label)) ?? null;
    return [node, { layer: layers[0] === undefined ? null : Number(layers[0]), pod }];
  });
  return new Map(places.filter(([, { layer, pod }]) => layer !== null || pod !== null));
}

export function samePlaces(a: Places, b: Places): boolean {
  return JSON.stringify([...a]) === JSON.stringify([...b]);
}
