import type { Box } from './scene';

/** The point in the middle of the picture, and pixels per unit. */
export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

const PADDING = 34;
/** A small network is not enlarged more than this to fill its box. */
const LARGEST_FIT = 1.45;
const LARGEST = 8;
/** The whole network stays at least this large, so that it cannot be lost, px. */
const SMALLEST_PX = 40;

/** Shows a box of the network as large as it fits. */
export function fit(box: Box, { width, height }: Size): Camera {
  const across = (width - 2 * PADDING) / Math.max(1, box.w);
  const down = (height - 2 * PADDING) / Math.max(1, box.h);
  const zoom = Math.min(LARGEST_FIT, Math.max(across, 1e-3), Math.max(down, 1e-3));
  return { x: box.x, y: box.y, zoom };
}

/** Zooms; what is at this pixel stays there. */
export function zoomAt(
  camera: Camera,
  factor: number,
  at: { x: number; y: number },
  size: Size,
  bounds: Box,
): Camera {
  const least = SMALLEST_PX / Math.max(1, bounds.w, bounds.h);
  const zoom = Math.min(LARGEST, Math.max(least, camera.zoom * factor));
  const part = 1 / camera.zoom - 1 / zoom;
  return {
    x: camera.x + (at.x - size.width / 2) * part,
    y: camera.y + (at.y - size.height / 2) * part,
    zoom,
  };
}

/** Moves the network by pixels. */
export function moved(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.zoom, y: camera.y - dy / camera.zoom };
}

export function toScreen(camera: Camera, size: Size, x: number, y: number): { x: number; y: number } {
  return {
    x: (x - camera.x) * camera.zoom + size.width / 2,
    y: (y - camera.y) * camera.zoom + size.height / 2,
  };
}

export function toNetwork(camera: Camera, size: Size, x: number, y: number): { x: number; y: number } {
  return {
    x: (x - size.width / 2) / camera.zoom + camera.x,
    y: (y - size.height / 2) / camera.zoom + camera.y,
  };
}
