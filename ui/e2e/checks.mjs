// The data that each page must show. Every check reads data from the page; it is not enough that the page loads.
import assert from 'node:assert/strict';

const WAIT = { timeout: 60_000 };

export async function open(page, base, hash) {
  await page.goto(`${base}#/${hash}`);
}

/** Text of the first match, once `matches` holds for it. */
async function until(page, selector, matches, what) {
  const deadline = Date.now() + WAIT.timeout;
  let text = '';
  while (Date.now() < deadline) {
    text =
      (await page
        .locator(selector)
        .first()
        .textContent()
        .catch(() => '')) ?? '';
    if (matches(text)) return text;
    await page.waitForTimeout(100);
  }
  assert.fail(`${what}: ${selector} says ${JSON.stringify(text)}`);
}

const number = (text) => Number(text.replace(/[^\d.]/g, ''));

export async function overview(page, base) {
  await open(page, base, 'overview');
  await until(
    page,
    '.live-state',
    (text) => /^[\d.]+ ?[kMG]? reports\/s$/.test(text) && number(text) > 0,
    'reports/s',
  );
  await until(
    page,
    '.verdict strong',
    (text) => text.length > 10 && !text.startsWith('Nothing received'),
    'verdict',
  );
  await until(page, '.budget li:nth-child(3) .out', (text) => number(text) > 0, 'what was decoded');
  const stages = await page.locator('.budget h3').allTextContents();
  const always = stages.filter((name) => name !== 'Fan-out');
  assert.deepEqual(
    always,
    ['Network', 'Kernel', 'Decode', 'State', 'Queue', 'Store'],
    'the stages in their order',
  );
  await until(
    page,
    '.overview .panel[aria-label="Slowest flows"] tbody tr',
    (text) => /→/.test(text),
    'flows',
  );
  await until(page, '.panel[aria-label="Sources"] tbody tr', (text) => text.length > 10, 'sources');
  await until(page, '.panel[aria-label="Tables"] tbody tr', (text) => /of/.test(text), 'tables');
  for (const name of ['Reports per second', 'Hop latency p99'])
    await drawn(page, `.panel[aria-label="${name}"]`);
}

/** A chart that has lines: its canvas holds more than one colour inside the plot. */
async function drawn(page, box) {
  await page.locator(`${box} canvas`).first().waitFor(WAIT);
  const deadline = Date.now() + WAIT.timeout;
  while (Date.now() < deadline) {
    if ((await colours(page, `${box} canvas`)) > 8) return;
    await page.waitForTimeout(200);
  }
  assert.fail(`${box}: nothing is drawn`);
}

function colours(page, selector) {
  return page
    .locator(selector)
    .first()
    .evaluate((canvas) => {
      const { width, height } = canvas;
      const left = Math.floor(width * 0.2);
      const pixels = canvas
        .getContext('2d')
        .getImageData(left, 0, width - left, Math.floor(height * 0.8)).data;
      const seen = new Set();
      for (let i = 0; i < pixels.length; i += 4)
        seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
      return seen.size;
    });
}

export async function topology(page, base) {
  await open(page, base, 'topology');
  await page.locator('.canvas canvas').first().waitFor(WAIT);
  await until(page, '.follow tbody tr', (text) => /→/.test(text), 'flows to follow');
  await until(
    page,
    '.map-summary',
    (text) => /^([2-9]|\d{2,}) nodes, \d+ links?$/.test(text),
    'nodes and links on the map',
  );
  await page.locator('.canvas').focus();
  await page.keyboard.press('ArrowRight');
  await until(page, '.detail h3', (text) => /\d/.test(text), 'the selected node');
  await until(
    page,
    '.detail .facts',
    (text) => /hop latency/.test(text) && /reports/.test(text),
    'facts of the node',
  );
  await page.keyboard.press('Escape');
  await page.locator('.follow tbody tr').first().click();
  await until(page, '.detail .facts', (text) => /path.*›/.test(text), 'the path that is followed');
  for (const metric of ['queue', 'utilization', 'latency']) {
    await page.locator(`[data-metric="${metric}"]`).click();
    await until(page, '.map-legend .ticks', (text) => /\d/.test(text), `legend of ${metric}`);
  }
  await until(page, '.map-legend .ticks', (text) => /(ns|µs|ms)/.test(text), 'units of the legend');
}

export async function flow(page, base) {
  await open(page, base, 'flow');
  await until(page, '.flow-title h1', (text) => /→/.test(text), 'the slowest flow is shown');
  // The slowest flow may be a single burst, with nothing to draw yet; the busiest one always continues.
  const list = page.locator('.flow-list').first();
  const sorted = page.waitForResponse((response) => response.url().includes('sort=reports'), WAIT);
  await list.getByLabel('Order').selectOption('reports');
  await sorted;
  await page.waitForTimeout(200);
  const first = list.locator('tbody tr').filter({ hasText: /›.*›/ }).first();
  const name = (await first.innerText()).split('\n')[0].trim();
  // The order may change in between.
  await list.locator('tbody tr').filter({ hasText: name }).first().click();
  await until(page, '.flow-title h1', (text) => text.includes(name), 'the selected flow');
  await until(page, '.path-strip', (text) => (text.match(/\d/g) ?? []).length > 5, 'hops of the path');
  const hops = await page.locator('.path-strip li').count();
  assert.ok(hops >= 2, `a path of ${hops} hops`);
  await until(
    page,
    '.panel[aria-label="Hops"] tbody tr',
    (text) => /(ns|µs|ms)/.test(text),
    'latency of a hop',
  );
  assert.equal(await page.locator('.panel[aria-label="Hops"] tbody tr').count(), hops, 'one row per hop');
  await drawn(page, '.panel[aria-label="Latency of each hop, stacked"]');
}

export async function events(page, base) {
  await open(page, base, 'events');
  await until(page, '.event-list .sentence', (text) => text.length > 8, 'an event as a sentence');
  await page.locator('.stream-state[data-state="live"]').waitFor(WAIT);
  const counts = await page.locator('.chip b').allTextContents();
  const sum = (texts) => texts.reduce((total, text) => total + number(text), 0);
  assert.ok(sum(counts) > 0, 'counts by kind');
  await grows(async () => sum(await page.locator('.chip b').allTextContents()), 'live events arrive');
  const older = page.getByRole('button', { name: 'Older events' });
  if (await older.isEnabled()) {
    const growth = grows(() => page.locator('.event-list .event-line').count(), 'older events are added');
    await older.click();
    await growth;
  }
  // In a burst the clicked row may leave the list at once: then the next one is tried.
  for (const deadline = Date.now() + WAIT.timeout; ;) {
    await page.locator('.event-line').first().click();
    const details = page.locator('.event-details .facts', { hasText: 'record' }).first();
    const there = await details.waitFor({ timeout: 2_000 }).then(
      () => true,
      () => false,
    );
    if (there) break;
    assert.ok(Date.now() < deadline, 'details of an event');
  }
  const kind = await page.locator('.chip:not(.zero)').first();
  const name = (await kind.textContent()).replace(/[\d\s]+$/, '');
  await kind.click();
  await onlyKind(page, name);
  await kind.click();
  await page.getByRole('button', { name: 'Pause' }).click();
  await until(page, '.stream-state', (text) => /paused/.test(text), 'paused');
  await page.getByRole('button', { name: 'Resume' }).click();
}

/** Waits until a number is greater than it was at first. */
async function grows(read, what) {
  const first = await read();
  const deadline = Date.now() + WAIT.timeout;
  while (Date.now() < deadline) {
    if ((await read()) > first) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`${what}: still ${first}`);
}

/** The list is drawn four times a second: the filter works when only events of the chosen kind are left. */
async function onlyKind(page, name) {
  const deadline = Date.now() + WAIT.timeout;
  let kinds = [];
  while (Date.now() < deadline) {
    kinds = [...new Set(await page.locator('.event-list .kind').allTextContents())];
    if (kinds.length === 1 && kinds[0] === name) return;
    await page.waitForTimeout(100);
  }
  assert.deepEqual(kinds, [name], 'the filter by kind');
}

/** Whether the program has a manager. Without one both pages explain how to add it. */
async function hasManager(page, name) {
  const found = page.locator(`.page.${name} tbody tr`).first();
  const none = page.locator('.empty', { hasText: 'No manager' });
  await found.or(none).first().waitFor(WAIT);
  return !(await none.isVisible());
}

const INTENTS = '.panel[aria-label="Intents"] tbody';

/** From a flow that was seen to a verified intent, and back. */
export async function intents(page, base) {
  await open(page, base, 'intents');
  if (!(await hasManager(page, 'intents'))) return;
  await open(page, base, 'flow');
  await page.locator('tbody tr').first().click();
  await page.getByRole('link', { name: 'watch this' }).click();
  const name = page.locator('.intent-form input[data-key="name"]');
  await name.waitFor(WAIT);
  assert.match(await name.inputValue(), /^flow-/, 'the form is filled in');
  // Nothing that was typed is lost when it is refused.
  await name.fill('no name');
  await page.getByRole('button', { name: 'Apply' }).click();
  await until(page, '.watch-flows .answer', (text) => /is not a name/.test(text), 'the refusal');
  assert.equal(await name.inputValue(), 'no name');
  await name.fill('browser');
  await page.getByRole('button', { name: 'Show plan' }).click();
  await until(page, '.plan', (text) => /entries added/.test(text), 'the plan');
  assert.ok((await page.locator('.domain-map .adds').count()) > 0, 'the map shows what each device gets');
  assert.doesNotMatch(await page.locator(INTENTS).textContent(), /browser/, 'a plan changes nothing');
  await page.getByRole('button', { name: 'Apply' }).click();
  const began = Date.now();
  const row = page.locator(`${INTENTS} tr`, { hasText: 'browser' });
  await row.waitFor(WAIT);
  await until(page, INTENTS, (text) => /browser(complete|seen)/.test(text), 'the verified state');
  console.log(`      verified in the browser ${Date.now() - began} ms after it was applied`);
  await row.click();
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('button', { name: /^Really remove/ }).click();
  await row.waitFor({ ...WAIT, state: 'detached' });
}

export async function devices(page, base) {
  await open(page, base, 'devices');
  if (!(await hasManager(page, 'devices'))) return;
  await until(page, '.panel[aria-label="Devices"] tbody', (text) => /in_sync/.test(text), 'the devices');
  await until(page, '.panel[aria-label="Ports"] tbody', (text) => /source and sink/.test(text), 'the roles');
  await until(page, '.rules', (text) => /watch/.test(text), 'the rules');
}

/** Whether the program has collector memory. Without it both pages explain how to add it. */
async function hasMemory(page, name) {
  const found = page.locator(`.page.${name} tbody tr`).first();
  const none = page.locator('.empty', { hasText: 'No collector memory' });
  await found.or(none).first().waitFor(WAIT);
  return !(await none.isVisible());
}

export async function stores(page, base) {
  await open(page, base, 'stores');
  if (!(await hasMemory(page, 'stores'))) return;
  await until(page, '.memory .facts', (text) => /(?<!un)balanced/.test(text), 'the balance');
  await until(page, '.panel[aria-label="Stores"] tbody', (text) => /key-write/.test(text), 'the stores');
  await page.locator('.panel[aria-label="Stores"] tbody tr', { hasText: 'key-write' }).first().click();
  await page.locator('#key').fill('10.0.0.1:1234 > 10.0.0.2:80 tcp');
  await page.getByRole('button', { name: 'Query' }).click();
  await until(page, '.answer', (text) => /(agree|not found)/.test(text), 'an answer');
}

export async function lists(page, base) {
  await open(page, base, 'lists');
  if (!(await hasMemory(page, 'lists'))) return;
  await until(page, '.entries tbody tr', (text) => /\d/.test(text), 'entries');
  const first = await page.locator('.entries tbody tr').first().textContent();
  await until(page, '.entries tbody tr', (text) => text !== first, 'entries that come');
}

export async function sql(page, base) {
  await open(page, base, 'sql');
  const editor = page.locator('.editor');
  await editor.fill('SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY events DESC');
  await editor.press('Control+Enter');
  await until(page, '.query-output tbody tr', (text) => /[a-z]+\d+/.test(text), 'rows');
  await until(page, '.query .bar', (text) => /row.* in .* ms/.test(text), 'time taken');
  const [file] = await Promise.all([
    page.waitForEvent('download', WAIT),
    page.getByRole('button', { name: 'CSV' }).click(),
  ]);
  assert.equal(file.suggestedFilename(), 'hopwise.csv');
  await editor.fill('SELEC nothing');
  await editor.press('Control+Enter');
  await until(page, '.query-error', (text) => text.length > 5, 'the error beside the query');
  await page.getByRole('button', { name: /Hop latency over time/ }).click();
  await drawn(page, '.query-output');
}

export async function explainsEmpty(page, base) {
  await open(page, base, 'overview');
  await until(page, '.hint', (text) => /32766/.test(text) && /hopwise demo/.test(text), 'what to do');
  assert.ok(await page.locator('.hint').isVisible(), 'the first steps are shown');
  await until(page, '.verdict strong', (text) => text === 'Nothing received yet', 'no verdict over nothing');
  await open(page, base, 'topology');
  await until(page, '.map .empty', (text) => /No nodes yet/.test(text), 'topology without nodes');
  await open(page, base, 'events');
  await until(page, '.events .empty', (text) => /No events yet/.test(text), 'no events');
}

export async function requestsToken(page, base, token) {
  await open(page, base, 'overview');
  await page.locator('dialog[open]').waitFor(WAIT);
  await page.locator('#token').fill('wrong');
  await page.getByRole('button', { name: 'Continue' }).click();
  await until(page, 'dialog[open] .muted', (text) => /not accepted/.test(text), 'a wrong token is said');
  await page.locator('#token').fill(token);
  await page.getByRole('button', { name: 'Continue' }).click();
  await until(page, '.live-state', (text) => /reports\/s/.test(text), 'data after the token');
  await open(page, base, 'events');
  await page.locator('.stream-state[data-state="live"]').waitFor(WAIT);
}

export async function saysUnreachable(page) {
  await until(page, '.banner', (text) => /No answer.*Next try/.test(text), 'the banner');
  await until(page, '.live-state', (text) => text === 'no answer', 'the state');
}
