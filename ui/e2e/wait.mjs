// Waiting. A check chooses what it looks at, and waits for it: it depends neither on what is latest, first or slowest when the
// page is read, nor on the second of the demo's minute, nor on the speed of the machine.
import assert from 'node:assert/strict';

/** Enough on a quarter of a slow machine: only what never comes takes as long. */
export const WAIT = { timeout: 180_000 };

/** Pause between two readings. */
const AGAIN_MS = 100;

/** How long an action may take to have an effect, before it is repeated. */
const EFFECT_MS = 5_000;

/** A check that does not apply here. It is not counted as passed. */
export class Skipped extends Error {}

export async function open(page, base, hash) {
  await page.goto(`${base}#/${hash}`);
  // Within the same document, the page learns of its new address by an event.
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
}

/** An answer of the API. */
export async function read(page, base, path) {
  return (await page.request.get(`${base}api/v1/${path}`)).json();
}

/** Returns what `value` gives, once it is as wanted. What cannot be read yet is read again. */
export async function eventually(value, isWanted, what, timeout = WAIT.timeout) {
  const deadline = Date.now() + timeout;
  for (;;) {
    let found;
    try {
      found = await value();
      if (isWanted(found)) return found;
    } catch (error) {
      found = error.message;
    }
    if (Date.now() > deadline) assert.fail(`${what}: ${JSON.stringify(found)}`);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Waits until a value is the expected one. */
export function becomes(value, expected, what) {
  const text = JSON.stringify(expected);
  return eventually(value, (found) => JSON.stringify(found) === text, `${what}, expected ${text}`);
}

/** Text of the first match, once `matches` holds for it. */
export function until(page, selector, matches, what) {
  const first = page.locator(selector).first();
  return eventually(async () => (await first.textContent()) ?? '', matches, `${what}: ${selector}`);
}

/** The address after `#/`, once it matches. */
export function addressIs(page, matches, what) {
  return eventually(
    () => new URL(page.url()).hash,
    (hash) => matches.test(hash),
    `${what}: the address`,
  );
}

/** Acts, and again if there is no effect: lists and charts move, so that a click may miss. */
export async function insist(act, hasWorked, what) {
  const deadline = Date.now() + WAIT.timeout;
  for (;;) {
    try {
      await act();
      return await eventually(hasWorked, (worked) => worked, what, EFFECT_MS);
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
  }
}

/** The row of a table about a flow, wherever it is at the moment. */
export function rowOf(page, rows, text) {
  return page.locator(rows).filter({ has: page.locator(`[title="${text}"]`) });
}

/** A flow that always has reports, with a path of at least three nodes. */
export async function steadyFlow(page, base) {
  const flows = await eventually(
    async () =>
      (await read(page, base, 'flows?sort=reports&limit=100')).flows.filter(
        ({ path, flow }) => path.length >= 3 && !path.includes(null) && flow.sport !== null,
      ),
    (found) => found.length > 0,
    'a busy flow with a path',
  );
  return flows[0];
}

/** Presses a button that asks before it acts. The question is withdrawn after some seconds, and then asked again. */
export async function confirm(page, button, question) {
  const asked = page.getByRole('button', { name: question });
  let answered = false;
  await insist(
    async () => {
      if (!(await asked.isVisible())) await page.getByRole('button', { name: button }).click();
      await asked.click({ timeout: EFFECT_MS });
      answered = true;
    },
    () => answered,
    `${button}, and ${question}`,
  );
}

/** A chart that has lines: its canvas holds more than one colour inside the plot. */
export async function drawn(page, box) {
  const canvas = page.locator(`${box} canvas`).first();
  await eventually(
    () => canvas.evaluate(coloursOf),
    (colours) => colours > 8,
    `${box}: colours that are drawn`,
  );
}

function coloursOf(canvas) {
  const { width, height } = canvas;
  const left = Math.floor(width * 0.2);
  const pixels = canvas.getContext('2d').getImageData(left, 0, width - left, Math.floor(height * 0.8)).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4)
    seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
  return seen.size;
}

/** The oldest and the newest whole minutes of which the program has something, and its start, ms. */
export async function known(page, base) {
  const { now, uptime_s } = await read(page, base, 'status');
  // What a demo has simulated of the past is older than the program.
  const { points = [] } = await read(page, base, 'activity').catch(() => ({}));
  const start = now / 1e6 - uptime_s * 1000;
  const oldest = Math.min(start, ...points.slice(0, 1).map(({ ts }) => ts / 1e6));
  return {
    first: Math.ceil(oldest / 60_000) * 60_000,
    last: Math.floor((now / 1e6 - 130_000) / 60_000) * 60_000,
    start,
  };
}

/** A time as the API takes it. */
export const nanos = (ms) => `${BigInt(Math.round(ms)) * 1_000_000n}`;

/** A time in an address. */
export const inAddress = (ms) => new Date(ms).toISOString().replace('.000', '');
