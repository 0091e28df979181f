// The data that each page must show. Every check reads data from the page; it is not enough that the page loads.
import assert from 'node:assert/strict';

export const WAIT = { timeout: 60_000 };

export async function open(page, base, hash) {
  await page.goto(`${base}#/${hash}`);
}

/** Text of the first match, once `matches` holds for it. */
export async function until(page, selector, matches, what) {
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

/** An answer of the API. */
export async function read(page, base, path) {
  return (await page.request.get(`${base}api/v1/${path}`)).json();
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
export async function drawn(page, box) {
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

/** The worst cell of the heat map: its flows are those that filled the queue. */
export async function queues(page, base) {
  await open(page, base, 'queues');
  await drawn(page, '.heat');
  await until(page, '.queues .panel .legend', (text) => /\d/.test(text), 'the legend of the heat map');
  // A program that has just started has no burst yet.
  await until(page, '.queues .panel-head .legend', (text) => /\d\d k$/.test(text.trim()), 'a deep queue');
  await page.locator('.heat canvas').focus();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowRight');
  await until(page, '.heat .chart-tip', (text) => /\d/.test(text), 'the value of a cell');
  await page.keyboard.press('Enter');
  await until(
    page,
    '.burst .verdict-text',
    (text) => text.length > 20 && text !== 'Reading …',
    'who filled the queue',
  );
  assert.match(page.url(), /at=\d+/);
  // The range is in the address; back returns to it.
  await page.getByRole('button', { name: '1 h', exact: true }).click();
  assert.match(page.url(), /last=1h/);
  await page.goBack();
  await page.waitForFunction(() => !location.hash.includes('last=1h'));
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
  // Beside a spike of the past, hops are flat at the bottom, where no pixels are compared: what is drawn stands in the legend.
  const chart = '.panel[aria-label="Latency of each hop, stacked"]';
  await page.locator(`${chart} canvas`).first().waitFor(WAIT);
  await page
    .locator(`${chart} .swatch`)
    .nth(hops - 1)
    .waitFor(WAIT);
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
  const name = (await kind.textContent()).replace(/[\d\s+]+$/, '');
  await kind.click();
  await onlyKind(page, name);
  await kind.click();
  await page.getByRole('button', { name: 'Pause' }).click();
  await until(page, '.stream-state', (text) => /paused/.test(text), 'paused');
  await page.getByRole('button', { name: 'Resume' }).click();
}

/** Waits until a number is greater than it was at first. */
async function grows(value, what) {
  const first = await value();
  const deadline = Date.now() + WAIT.timeout;
  while (Date.now() < deadline) {
    if ((await value()) > first) return;
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

/** A check that does not apply here. It is not counted as passed. */
export class Skipped extends Error {}

/** Goes on if the program has a manager. Only the mock may have none. */
async function needsManager(page, name) {
  const found = page.locator(`.page.${name} tbody tr`).first();
  const none = page.locator('.empty', { hasText: 'No manager' });
  await found.or(none).first().waitFor(WAIT);
  if (!(await none.isVisible())) return;
  assert.ok(!process.env.HOPWISE_URL, 'the program at HOPWISE_URL has no manager');
  throw new Skipped('the mock has no manager; set HOPWISE_URL to a running demo');
}

const INTENTS = '.panel[aria-label="Intents"] tbody';

/** From a flow that was seen to a verified intent, and back. */
export async function intents(page, base) {
  await open(page, base, 'intents');
  await needsManager(page, 'intents');
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
  await until(page, '.watch-flows .plan', (text) => /entr(y|ies) added/.test(text), 'the plan');
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

const FORM = '.watch-flows';

/** The plan and its removal for the form as it is filled in. */
async function planOf(page) {
  await page.getByRole('button', { name: 'Show plan' }).click();
  await until(page, '.watch-flows .plan', (text) => /entr(y|ies) added/.test(text), 'the plan');
  await until(page, '.watch-flows .plan .facts', (text) => /Goodput[\d.]+ %/.test(text), 'the goodput');
  return page.locator('.watch-flows .plan .facts').textContent();
}

/** The form says what it derived from a queue, a link and an event. */
export async function watchThis(page, base) {
  await open(page, base, 'intents');
  await needsManager(page, 'intents');
  await open(page, base, 'topology');
  await page.locator('.canvas canvas').first().waitFor(WAIT);
  await until(page, '.map-summary', (text) => /^[2-9] nodes/.test(text), 'nodes on the map');
  await page.locator('.canvas').focus();
  await page.keyboard.press('ArrowRight');
  await page
    .getByRole('link', { name: /^watch queue|^watch its queues/ })
    .first()
    .click();
  await until(page, `${FORM} .derived`, (text) => /^Derived from (queue|leaf|spine)/.test(text), 'the queue');
  // Flows that are measured without a filter tell how many reports will come.
  assert.match(await planOf(page), /Reports[\d.]+ ?k?\/s, [\d.]+ Mb\/s \(from \d+ flows/);
  await open(page, base, 'intents/new?from=link&node=101&to=201&name=link-101-201&watch=link_utilization');
  await until(
    page,
    `${FORM} .derived`,
    (text) => /^Derived from the link leaf1 → spine1/.test(text),
    'the link',
  );
  assert.equal(await page.locator(`${FORM} [data-key="edges"]`).inputValue(), 'leaf1');
  await planOf(page);
  await open(page, base, 'events');
  await eventWithFlow(page);
  await until(page, `${FORM} .derived`, (text) => /^Derived from an event/.test(text), 'the event');
  assert.notEqual(await page.locator(`${FORM} [data-key="src"]`).inputValue(), '', 'the flow of the event');
  await page.getByRole('button', { name: 'Clear' }).click();
}

/** Opens an event that has a flow, and follows its link. In a burst a row may leave the list at once. */
async function eventWithFlow(page) {
  const deadline = Date.now() + WAIT.timeout;
  const pause = page.getByRole('button', { name: 'Pause' });
  await page.locator('.event-line').first().waitFor(WAIT);
  await pause.click();
  while (Date.now() < deadline) {
    await page.locator('.event-line', { hasText: '→' }).first().click();
    const link = page.locator('.event-details').getByRole('link', { name: 'watch this' }).first();
    const there = await link.click({ timeout: 2_000 }).then(
      () => true,
      () => false,
    );
    if (there) return;
  }
  assert.fail('an event has “watch this”');
}

/** Presses Tab until the element that `matches` has the focus. */
async function tabTo(page, matches, what) {
  for (let i = 0; i < 80; i += 1) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const { tagName, textContent, dataset } = document.activeElement;
      return { tagName, text: (textContent ?? '').trim(), key: dataset.key ?? '' };
    });
    if (matches(at)) return;
  }
  assert.fail(`${what} cannot be reached with Tab`);
}

/** An intent is planned, applied, verified and removed without a pointer; the page is not wider than the screen. */
export async function intentsByKeyboard(page, base) {
  await open(page, base, 'overview');
  await open(page, base, 'intents');
  await needsManager(page, 'intents');
  await page.evaluate(() => document.activeElement?.blur());
  const button = (name) => (at) => at.tagName === 'BUTTON' && at.text === name;
  await tabTo(page, (at) => at.key === 'name', 'the name');
  await page.keyboard.type('keys');
  await tabTo(page, (at) => at.key === 'proto', 'the protocol');
  await page.keyboard.type('udp');
  await tabTo(page, button('Show plan'), 'Show plan');
  await page.keyboard.press('Enter');
  await until(
    page,
    '.watch-flows .plan',
    (text) => /entr(y|ies) added|nothing changes/.test(text),
    'the plan',
  );
  await tabTo(page, button('Apply'), 'Apply');
  await page.keyboard.press('Enter');
  await until(page, INTENTS, (text) => /keys(complete|seen)/.test(text), 'the verified state');
  await until(page, '.progress', (text) => /leaf1in_sync/.test(text), 'each device');
  const wider = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  assert.equal(wider, 0, 'the page is wider than the screen');
  await page.evaluate(() => document.activeElement?.blur());
  await tabTo(page, button('Remove'), 'Remove');
  await page.keyboard.press('Enter');
  await until(page, '.intents .armed', (text) => text === 'Really remove keys?', 'the question');
  await page.keyboard.press('Enter');
  await page.locator(`${INTENTS} tr`, { hasText: 'keys' }).waitFor({ ...WAIT, state: 'detached' });
}

/** With a token that may only read, controls that change something are disabled, and say why; nothing typed is lost. */
export async function readOnly(page, base) {
  await open(page, base, 'intents');
  await needsManager(page, 'intents');
  const role = { role: 'read', name: 'reader', needs_token: true, console: false };
  await page.route('**/api/v1/session', (route) => route.fulfill({ json: role }));
  await page.reload();
  const apply = page.getByRole('button', { name: 'Apply' });
  const stop = page.getByRole('button', { name: 'Stop all INT' });
  await until(page, '#read-only', (text) => /may only read/.test(text), 'the reason');
  assert.ok((await apply.isDisabled()) && (await stop.isDisabled()), 'controls are disabled');
  const name = page.locator(`${FORM} [data-key="name"]`);
  await name.fill('reader');
  await name.press('Enter');
  await planOf(page);
  await open(page, base, 'devices');
  await until(page, '.read-only', (text) => /may only read/.test(text), 'the reason on Devices');
  assert.ok(await stop.isDisabled(), 'the control on Devices is disabled');
  // A server that learns of the role later refuses; what was typed stays.
  await page.unroute('**/api/v1/session');
  const refusal = { status: 403, json: { error: 'this token may only read' } };
  await page.route('**/api/v1/intents', (route) =>
    route.request().method() === 'PUT' ? route.fulfill(refusal) : route.fallback(),
  );
  await open(page, base, 'intents');
  await page.reload();
  await name.fill('reader');
  await apply.click();
  await until(page, `${FORM} .answer`, (text) => /may only read/.test(text), 'the refusal');
  assert.equal(await name.inputValue(), 'reader', 'what was typed');
  await page.unroute('**/api/v1/intents');
  await page.getByRole('button', { name: 'Clear' }).click();
}

const INTENT = '.panel[aria-label="Intent"]';
const WAITING = '.panel[aria-label="Changes that wait for approval"]';

/** A plan waits for a person, who sees and applies it; no intent is replaced that is not the one that was looked at. */
export async function approval(page, base, manager) {
  await open(page, base, 'intents');
  await until(
    page,
    WAITING,
    (text) => /1 watchlist entry added/.test(text) && /leaf1/.test(text),
    'the plan',
  );
  await until(page, INTENTS, (text) => /web.*waits for approval/.test(text), 'the intent');
  await page.getByRole('button', { name: 'Apply changes' }).click();
  await page.locator(WAITING).waitFor({ ...WAIT, state: 'hidden' });
  await until(page, INTENTS, (text) => /webinstalled/.test(text), 'the intent is installed');
  const answer = `${FORM} .answer`;
  const apply = page.getByRole('button', { name: 'Apply', exact: true });
  const name = page.locator(`${FORM} [data-key="name"]`);
  await name.fill('web');
  await apply.click();
  await until(page, answer, (text) => /there is an intent `web` already/.test(text), 'a name that is taken');
  const edit = async () => {
    await page.locator(`${INTENTS} tr`, { hasText: 'web' }).click();
    await page.getByRole('button', { name: 'Edit' }).click();
    assert.equal(await name.inputValue(), 'web');
  };
  await edit();
  assert.equal(
    await page.locator(`${FORM} [data-key="dport"]`).inputValue(),
    '443',
    'the form has the intent',
  );
  manager.put({ name: 'web', match: { dport: ['444'] }, watch: ['hop_latency'] }, 'bob');
  await apply.click();
  await until(page, answer, (text) => /was replaced by bob meanwhile/.test(text), 'another version');
  await until(page, `${INTENT} .facts`, (text) => /port 444/.test(text), 'what there is now');
  await edit();
  await page.locator(`${FORM} [data-key="dport"]`).fill('445');
  await apply.click();
  await until(page, answer, (text) => /^web is changed/.test(text), 'the change');
  assert.deepEqual(manager.intents.get('web').intent.match, { dport: ['445'] });
  // An intent that says more than the form can is not edited by it.
  manager.put({ name: 'web', match: { dscp: [10] }, watch: ['hop_latency'] }, 'bob');
  await until(page, `${INTENT} .facts`, (text) => /DSCP 10/.test(text), 'the DSCP');
  assert.ok(await page.getByRole('button', { name: 'Edit' }).isDisabled(), 'Edit is disabled');
}

const RULES = '.panel[aria-label="Rules"] .rules';

export async function devices(page, base) {
  await open(page, base, 'devices');
  await needsManager(page, 'devices');
  await until(page, '.panel[aria-label="Devices"] tbody', (text) => /in_sync/.test(text), 'the devices');
  await until(page, '.panel[aria-label="Ports"] tbody', (text) => /source and sink/.test(text), 'the roles');
  await until(page, RULES, (text) => /watch/.test(text), 'the rules');
  await until(page, '.side .facts', (text) => /After a restart/.test(text), 'the capabilities');
  // All INT stops, and starts again, by one control that asks first.
  await page.getByRole('button', { name: 'Stop all INT' }).click();
  await page.getByRole('button', { name: 'Really stop all INT?' }).click();
  await until(page, '.devices .facts', (text) => /stopped by hand/.test(text), 'INT is stopped');
  await until(page, RULES, (text) => !/watch/.test(text), 'no watchlist');
  await page.getByRole('button', { name: 'Start INT' }).click();
  await until(page, RULES, (text) => /watch/.test(text), 'the watchlist is back');
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
    page.getByRole('button', { name: 'CSV', exact: true }).click(),
  ]);
  assert.match(file.suggestedFilename(), /^hopwise_sql_result_\d{8}T\d{6}Z\.csv$/);
  await editor.fill('SELEC nothing');
  await editor.press('Control+Enter');
  await until(page, '.query-error', (text) => text.length > 5, 'the error beside the query');
  await page.getByRole('button', { name: /Hop latency over time/ }).click();
  await drawn(page, '.query-output');
}

/** The address after `#/`, once it matches. */
export async function addressIs(page, matches, what) {
  const deadline = Date.now() + WAIT.timeout;
  let address = '';
  while (Date.now() < deadline) {
    address = new URL(page.url()).hash;
    if (matches.test(address)) return;
    await page.waitForTimeout(50);
  }
  assert.fail(`${what}: the address is ${address}`);
}

/** What is set on a page is in its address: a copy of it shows the same, and the back button undoes it. */
export async function addresses(page, base) {
  const order = page.locator('.flow-list').getByLabel('Order');
  await open(page, base, 'flow');
  await order.selectOption('reports');
  await page.locator('.flow-list tbody tr').first().click();
  await addressIs(page, /^#\/flow\/[0-9a-f]{16}\?sort=reports$/, 'order and flow');
  await page.locator('.flow-list').getByLabel('Search flows').fill('10.0');
  await addressIs(page, /\?sort=reports&filter=10\.0$/, 'what was typed');
  await page.reload();
  await until(page, '.flow-title h1', (text) => /→/.test(text), 'the flow of the address');
  assert.equal(await order.inputValue(), 'reports');
  assert.equal(await page.getByLabel('Search flows').inputValue(), '10.0');
  await page.goBack();
  await page.goBack();
  await addressIs(page, /^#\/flow$/, 'back');
  assert.equal(await order.inputValue(), 'latency');

  await open(page, base, 'topology');
  await page.locator('[data-metric="queue"]').click();
  await until(page, '.follow tbody tr', (text) => /→/.test(text), 'flows to follow');
  await page.locator('.follow tbody tr').first().click();
  await addressIs(page, /^#\/topology\?lens=queue&flow=[0-9a-f]{16}$/, 'lens and flow');
  await page.reload();
  await page.locator('[data-metric="queue"][aria-pressed="true"]').waitFor(WAIT);
  await page.locator('.follow tr.selected').waitFor(WAIT);
  await page.goBack();
  await until(page, '.detail', (text) => /Nothing selected/.test(text), 'no flow');
  await page.goBack();
  await page.locator('[data-metric="latency"][aria-pressed="true"]').waitFor(WAIT);

  await open(page, base, 'events');
  await page.locator('.chip', { hasText: 'path' }).first().click();
  await page.getByLabel('Node').fill('101');
  await page.getByLabel('Node').press('Enter');
  await addressIs(page, /^#\/events\?kind=path_change&node=101$/, 'the filter of events');
  await page.reload();
  assert.equal(await page.getByLabel('Node').inputValue(), '101');
  await page.locator('.chip[aria-pressed="true"]', { hasText: 'path' }).waitFor(WAIT);

  await open(page, base, 'sql');
  const text = "SELECT kind, count(*) AS n FROM events WHERE kind <> '?&#%' GROUP BY kind";
  await page.locator('.editor').fill(text);
  await page.locator('#limit').selectOption('100');
  await page.locator('.editor').press('Control+Enter');
  await addressIs(page, /^#\/sql\?sql=SELECT.*&limit=100$/, 'the query');
  await page.reload();
  await until(page, '.query-output tbody tr', (row) => /[a-z]+\d+/.test(row), 'the result of the address');
  assert.equal(await page.locator('.editor').inputValue(), text);
}

/** A filter is completed from the names of the network, says what is wrong where, and selects what it says. */
export async function filters(page, base) {
  const probe = await page.request.get(`${base}api/v1/filter`).catch(() => null);
  if (!probe?.ok()) throw new Skipped('the mock does not judge filters');
  await open(page, base, 'flow');
  const field = page.getByLabel('Search flows');
  const shown = page.locator('.flow-list [role="option"]');
  await until(page, '.flow-list tbody tr', (text) => /→/.test(text), 'flows');
  await field.fill('por');
  await until(page, '.flow-list [role="option"]', (text) => /port/.test(text), 'a completion of a field');
  await field.press('ArrowDown');
  await field.press('Enter');
  assert.equal(await field.inputValue(), 'port ');
  await until(page, '.flow-list [role="option"]:nth-child(7)', (text) => /in/.test(text), 'operators');
  await field.fill('proto == 1 and kind == drop and port > 0');
  await until(
    page,
    '.filter-fault',
    (text) => /kind is a field of events, not of flows/.test(text),
    'the fault',
  );
  assert.equal(await page.locator('.filter-marks mark').textContent(), 'kind');
  await field.fill('proto == 1 and port > 0');
  await until(page, '.flow-list', (text) => /No matching flows/.test(text), 'no flow');
  await addressIs(page, /filter=proto\+%3D%3D\+1\+and\+port\+%3E\+0$/, 'the filter');
  await field.press('Escape');
  await shown.first().waitFor({ state: 'hidden', ...WAIT });

  await open(page, base, 'events');
  const events = page.getByLabel('Filter of events');
  await events.fill('kind == new and metric == flow_path');
  await events.press('Enter');
  await until(page, '.event-list, .events table', (text) => /new flow/.test(text), 'new flows');
  await addressIs(page, /^#\/events\?filter=kind/, 'the filter of events');
  await page.reload();
  assert.equal(await events.inputValue(), 'kind == new and metric == flow_path');
}

/** Keys that work on every page, and that can be turned off; names of flows can be read on a phone. */
export async function hands(page, base) {
  await open(page, base, 'overview');
  await page.locator('.live-state').waitFor(WAIT);
  await page.keyboard.press('g');
  await page.keyboard.press('f');
  await addressIs(page, /^#\/flow/, 'g f');
  await until(page, '.flow-list tbody tr', (text) => /→/.test(text), 'flows');
  await page.keyboard.press('/');
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? '');
  assert.equal(await focused(), 'Search flows');
  await page.keyboard.type('gt?/');
  await addressIs(page, /filter=gt%3F%2F$/, 'letters in a field are letters');
  await page.getByLabel('Search flows').fill('');
  await until(page, '.flow-list tbody tr:nth-child(2)', (text) => /→/.test(text), 'two flows');
  await page.locator('.flow-list tbody tr').first().focus();
  const row = () => page.evaluate(() => document.activeElement?.closest('tr')?.sectionRowIndex ?? null);
  const rows = await page.locator('.flow-list tbody tr').count();
  const seen = [];
  for (const key of ['ArrowUp', 'ArrowDown', 'End', 'ArrowDown', 'Home']) {
    await page.keyboard.press(key);
    seen.push(await row());
  }
  const last = rows - 1;
  assert.deepEqual(seen, [0, 1, last, last, 0], 'rows by arrows, Home and End');
  await page.keyboard.press('?');
  const dialog = page.locator('dialog.keys[open]');
  await dialog.waitFor(WAIT);
  await page.getByLabel('Use the keys').uncheck();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ ...WAIT, state: 'detached' });
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press('?');
  await page.keyboard.press('/');
  assert.deepEqual([await dialog.count(), await focused()], [0, ''], 'keys that are turned off');
  await page.getByRole('button', { name: 'Keys' }).click();
  await page.getByLabel('Use the keys').check();
  await page.getByRole('button', { name: 'Close' }).click();
  const size = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 844 });
  await open(page, base, 'overview');
  const name = page.locator('.panel[aria-label="Slowest flows"] tbody td').first();
  await name.waitFor(WAIT);
  const cut = await name.evaluate(({ scrollWidth, clientWidth }) => ({ scrollWidth, clientWidth }));
  assert.ok(cut.clientWidth > 120, `the name of a flow has ${cut.clientWidth} px of ${cut.scrollWidth}`);
  await page.setViewportSize(size);
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
