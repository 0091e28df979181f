// A map of 1,000 nodes and 8,000 links: groups, worst first, search, all at once, keys, a phone, and how smoothly it moves.
import assert from 'node:assert/strict';
import { addressIs, eventually, open, until, WAIT } from './wait.mjs';

/** What the map drew last, once it is as wanted. */
async function mapHas(page, wanted, what) {
  const { strokes } = await eventually(
    () => page.locator('.canvas').evaluate(({ dataset }) => ({ ...dataset })),
    ({ lines, boxes }) => Number(lines) === wanted.lines && Number(boxes) === wanted.boxes,
    what,
  );
  return Number(strokes);
}

/** Times between frames while the map is dragged to and fro. For people to read: machines differ, so nothing is required of them. */
async function framesOfDrag(page) {
  const box = await page.locator('.canvas').boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + 12];
  const image = () =>
    page
      .locator('.canvas canvas')
      .first()
      .evaluate((canvas) => canvas.toDataURL());
  const before = await image();
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.evaluate(() => {
    const times = [];
    window.frameTimes = times;
    const next = (time) => {
      times.push(time);
      if (window.frameTimes === times) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
  for (const [dx, dy] of [
    [240, 90],
    [-240, 60],
    [60, 40],
  ])
    await page.mouse.move(x + dx, y + dy, { steps: 60 });
  const times = await page.evaluate(() => {
    const all = window.frameTimes;
    window.frameTimes = null;
    return all;
  });
  await eventually(
    async () => (await image()) !== before,
    (moved) => moved,
    'the map follows the mouse',
  );
  await page.mouse.up();
  const spans = times.slice(1).map((time, i) => time - times[i]);
  spans.sort((one, other) => one - other);
  const at = (share) => spans[Math.floor(share * (spans.length - 1))].toFixed(1);
  return { count: spans.length, median: at(0.5), most: at(0.95) };
}

/** 1,000 nodes and 8,000 links: groups, worst first, search, all at once, keys; and a phone. */
export async function largeTopology(page, base) {
  await open(page, base, 'topology');
  const first = await page
    .waitForFunction(() => performance.getEntriesByName('topology-first-picture')[0]?.startTime, null, WAIT)
    .then((handle) => handle.jsonValue());
  console.log(`      first picture after ${Math.round(first)} ms`);
  await until(page, '.map-summary', (text) => /^1\D?000 nodes, 8\D?000 links$/.test(text), 'the summary');
  // 40 pods and two halves of the cores; each pod has links with both, in both directions.
  const closed = { lines: 160, boxes: 42 };
  await mapHas(page, closed, 'closed groups');
  await until(page, '.ranks tbody tr', (text) => /^pod171 of 246 ms$/.test(text), 'the worst group');
  const find = page.locator('.find');
  await find.fill('pod17-leaf3');
  await find.press('Enter');
  await until(page, '.detail h3', (text) => text === 'pod17-leaf3 (node 2603)', 'the node that was found');
  await addressIs(page, /^#\/topology\/2603\?open=g2601&find=pod17-leaf3$/, 'the search');
  await page.reload();
  await until(
    page,
    '.detail .facts',
    (text) => /grouppod17hosts10\.16\.2/.test(text),
    'the same by its address',
  );
  await find.fill('');
  await page.getByRole('button', { name: 'Close all' }).click();
  await mapHas(page, closed, 'closed again');
  await page.getByRole('button', { name: 'Open all' }).click();
  const strokes = await mapHas(page, { lines: 8000, boxes: 1000 }, 'all nodes and links');
  assert.ok(strokes < 150, `8,000 lines and 1,000 boxes by ${strokes} strokes`);
  const frames = await framesOfDrag(page);
  console.log(
    `      dragged, all open: ${frames.count} frames, median ${frames.median} ms, 95 % within ${frames.most} ms`,
  );
  await page.getByRole('button', { name: 'Close all' }).click();
  await mapHas(page, closed, 'closed a second time');
  await page.locator('.canvas').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  await until(page, '.detail h3', (text) => /^pod\d+$/.test(text), 'a pod below the cores, by keys');
  await page.keyboard.press('Enter');
  await page.locator('.ranks tbody', { hasText: /-leaf1/ }).waitFor(WAIT);
  await page.keyboard.press('Enter');
  await page.keyboard.press('0');
  await mapHas(page, closed, 'closed by keys');
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole('button', { name: 'Show the whole network' }).click();
  await mapHas(page, closed, 'a phone');
  await eventually(
    () => page.evaluate(() => document.documentElement.scrollWidth),
    (width) => width <= 390,
    'the width of the page',
  );
}
