// Paths before and after a change, and where packets are lost. What really happened is known from the script of the demo.
import assert from 'node:assert/strict';
import { addressIs, becomes, drawn, inAddress, insist, known, open, Skipped, until, WAIT } from './wait.mjs';

const STEPS = 'table[aria-label="Path changes, newest first"] tbody tr';
const SUMMARY = '.step-summary';
const legend = (look) => `.path-legend li[data-look="${look}"]`;

/** Both paths of the chosen change, as the map's legend names them. */
async function named(page) {
  const path = async (look) =>
    (await until(page, legend(look), (text) => text.includes('›'), `the path ${look}`))
      .replace(look, '')
      .trim()
      .split(' › ');
  return { before: await path('before'), after: await path('after') };
}

/** The page has changes, both paths on the map, and steps from one to the next. */
export async function paths(page, base) {
  await open(page, base, 'paths');
  await until(page, STEPS, (text) => /→/.test(text), 'a change of paths');
  await until(page, SUMMARY, (text) => /flows? changed path at \d\d:\d\d:\d\d/.test(text), 'when it changed');
  await page.locator('.paths-map canvas').waitFor(WAIT);
  await page.waitForFunction(
    () => document.querySelector('.paths-map .canvas')?.dataset.routes === '2',
    null,
    WAIT,
  );
  // Another change may come at any time: one that was chosen stays.
  await insist(
    () => page.locator(STEPS).first().click(),
    () => /step=\d+%2F/.test(page.url()),
    'the chosen change',
  );
  const chosen = await named(page);
  assert.notDeepEqual(chosen.before, chosen.after);
  if ((await page.locator(`${STEPS}:last-child.selected`).count()) === 0) {
    const later = page.url();
    await page.getByRole('button', { name: 'Earlier change' }).click();
    await page.waitForFunction((before) => location.href !== before, later, WAIT);
    const earlier = page.url();
    await page.reload();
    await until(page, `${STEPS}.selected`, (text) => /→/.test(text), 'the same change after a reload');
    await becomes(() => page.url(), earlier, 'the address after a reload');
  }
  await page.locator('table[aria-label="Flows of this change"] tbody a').first().click();
  await addressIs(page, /^#\/paths\/[^?]+%3E[^?]+\?step=/, 'the flow');
  await until(page, 'table[aria-label="There"] tbody tr', (text) => /›.*%/.test(text), 'use of each path');
  await until(
    page,
    '.symmetry',
    (text) => /^(Symmetric|Asymmetric|The opposite direction)/.test(text),
    'both directions',
  );
  await until(
    page,
    'table[aria-label="Latency of each hop"] tbody tr',
    (text) => /(ns|µs|ms)/.test(text),
    'quantiles',
  );
  await drawn(page, '.classes');
  await page.getByRole('button', { name: 'with the time before' }).click();
  await addressIs(page, /compare=previous/, 'what is compared');
  await until(
    page,
    'table[aria-label="Latency of each hop"] tbody tr',
    (text) => / \/ /.test(text),
    'two values each',
  );
}

/**
 * A link that fails, and is restored, at known seconds of each minute: all flows over it go over the other spine, and come back. Of the
 * past that the demo has simulated, to which nothing is added.
 */
export async function changesOfTheDemo(page, base) {
  const { first, start } = await known(page, base);
  if (start - first < 60_000) throw new Skipped('the demo has no minute of the past: start it with --past');
  const to = first + Math.floor((start - first) / 60_000) * 60_000;
  await open(page, base, `paths?from=${inAddress(first)}&to=${inAddress(to)}`);
  await until(page, STEPS, (text) => /→/.test(text), 'a change of paths');
  const count = Math.min(8, await page.locator(STEPS).count());
  const seen = new Set();
  for (let i = 0; i < count; i += 1) {
    await page.locator(STEPS).nth(i).click();
    await until(page, `${STEPS}:nth-child(${i + 1}).selected`, (text) => text !== '', `change ${i}`);
    const { before, after } = await named(page);
    const summary = await page.locator(SUMMARY).textContent();
    const failed = before.includes('spine1');
    const [gone, other] = failed ? ['spine1', 'spine2'] : ['spine2', 'spine1'];
    assert.ok(before.includes(gone) && before.includes('leaf1'), `${before} over the link that fails`);
    assert.deepEqual(
      after,
      before.map((node) => (node === gone ? other : node)),
      'the same path over the other spine',
    );
    assert.match(summary, new RegExp(`${gone} → ${other}\\.$`));
    seen.add(failed);
  }
  assert.ok(seen.has(true), 'the failure of the link is among the changes');
}

/** The map shows losses, and the tables say where, why, and by which evidence. */
export async function losses(page, base) {
  await open(page, base, 'topology?lens=loss');
  await until(page, '.loss .step-summary', (text) => text.length > 20, 'a sentence');
  await until(
    page,
    'table[aria-label="Losses by link"] tbody tr',
    (text) => /→/.test(text) && /(not known|lost on it)/.test(text),
    'links and evidence',
  );
  await until(page, '.map-legend .legend-title', (text) => text === 'Lost packets', 'the legend');
  await until(
    page,
    'table[aria-label="Dropped packets, as nodes reported them"] tbody tr',
    (text) => /(queue full|link down)/.test(text),
    'drops with reasons',
  );
  await until(
    page,
    'table[aria-label="Lost reports"]',
    (text) => /Lost reports/.test(text),
    'lost reports apart',
  );
}
