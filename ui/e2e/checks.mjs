// The data that each page must show. Every check reads data from the page; it is not enough that the page loads.
import assert from 'node:assert/strict';

import {
  addressIs,
  becomes,
  confirm,
  drawn,
  eventually,
  inAddress,
  insist,
  nanos,
  open,
  read,
  rowOf,
  Skipped,
  steadyFlow,
  until,
  WAIT,
} from './wait.mjs';

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
  await becomes(
    async () => (await page.locator('.budget h3').allTextContents()).filter((name) => name !== 'Fan-out'),
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
  await until(
    page,
    '.panel[aria-label="Events per second"] header',
    (text) => /mean of 5 s/.test(text),
    'a mean',
  );
  await damagedFile(page);
}

/** A file of the store that cannot be used is shown as long as it is there. */
async function damagedFile(page) {
  const files = page.locator('.panel[aria-label="Files of the store"]');
  await files.waitFor({ ...WAIT, state: 'hidden' });
  const problem = {
    file: 'events-2026-01-02.db',
    kind: 'damaged',
    found: 1_767_312_000_000_000_000,
    records: 1234,
    message: 'database disk image is malformed; `hopwise store check` shows which records are readable',
  };
  await page.route('**/api/v1/status', async (route) => {
    const answer = await route.fetch();
    const status = await answer.json();
    await route.fulfill({ json: { ...status, store: { ...status.store, problems: [problem] } } });
  });
  const row =
    /events-2026-01-02\.db\s*damaged\s*1.23 k.*malformed; `hopwise store check` shows which records are readable/s;
  await until(page, '.panel[aria-label="Files of the store"] tbody tr', (text) => row.test(text), 'the file');
  await page.unroute('**/api/v1/status');
  await files.waitFor({ ...WAIT, state: 'hidden' });
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
  const { text } = await steadyFlow(page, base);
  await follow(page, text);
  await until(page, '.detail .facts', (text) => /path.*›/.test(text), 'the path that is followed');
  for (const [metric, title, unit] of [
    ['queue', /^Queue occupancy/, /\d/],
    ['utilization', /^Link utilization/, /%/],
    ['latency', /^Hop latency/, /(ns|µs|ms)/],
  ]) {
    await page.locator(`[data-metric="${metric}"]`).click();
    await until(page, '.map-legend .legend-title', (text) => title.test(text), `legend of ${metric}`);
    await until(page, '.map-legend .ticks', (text) => unit.test(text), `units of ${metric}`);
  }
}

/** Follows a flow from the list beside the map. Another click on it would end that. */
async function follow(page, text) {
  const row = rowOf(page, '.follow tbody tr', text);
  const isFollowed = async () => (await row.getAttribute('aria-current')) === 'true';
  await insist(
    async () => {
      if (!(await isFollowed())) await row.click();
    },
    isFollowed,
    `${text} is followed`,
  );
}

/** The worst cell of the heat map: its flows are those that filled the queue. */
export async function queues(page, base) {
  await open(page, base, 'queues');
  await drawn(page, '.heat');
  await until(page, '.queues .panel .legend', (text) => /\d/.test(text), 'the legend of the heat map');
  // A program that has just started has no burst yet.
  await until(page, '.queues .panel-head .legend', (text) => /\d\d k$/.test(text.trim()), 'a deep queue');
  await cellByKeys(page, (text) => /\d/.test(text), 'the value of a cell');
  await page.keyboard.press('Enter');
  await until(
    page,
    '.burst .verdict-text',
    (text) => text.length > 20 && text !== 'Reading …',
    'who filled the queue',
  );
  await addressIs(page, /at=\d+/, 'the chosen cell');
  // The range is in the address; back returns to it.
  await page.getByRole('button', { name: '1 h', exact: true }).click();
  await addressIs(page, /last=1h/, 'the range');
  await page.goBack();
  await addressIs(page, /^(?!.*last=1h)/, 'back from the range');
}

/** Moves to the worst cell. A cell that leaves the map takes its text with it. */
export async function cellByKeys(page, matches, what) {
  const tip = page.locator('.heat .chart-tip');
  await insist(
    async () => {
      await page.locator('.heat canvas').blur();
      await page.locator('.heat canvas').focus();
      await page.keyboard.press('ArrowLeft');
      await page.keyboard.press('ArrowRight');
    },
    async () => (await tip.isVisible()) && matches((await tip.textContent()) ?? ''),
    what,
  );
}

export async function flow(page, base) {
  await open(page, base, 'flow');
  await until(page, '.flow-title h1', (text) => /→/.test(text), 'the slowest flow is shown');
  // The slowest flow may be a single burst, with nothing to draw yet; the busiest one always continues.
  const { text } = await steadyFlow(page, base);
  await page.locator('.flow-list').getByLabel('Order').selectOption('reports');
  await selectFlow(page, text);
  const strip = '.path-strip';
  await until(page, strip, (text) => (text.match(/\d/g) ?? []).length > 5, 'hops of the path');
  await until(
    page,
    '.panel[aria-label="Hops"] tbody tr',
    (text) => /(ns|µs|ms)/.test(text),
    'latency of a hop',
  );
  // Both at the same moment: the path may change.
  const [hops] = await eventually(
    () =>
      page.evaluate(() =>
        ['.path-strip li', '.panel[aria-label="Hops"] tbody tr'].map(
          (selector) => document.querySelectorAll(selector).length,
        ),
      ),
    ([stations, rows]) => stations >= 2 && stations === rows,
    'stations of the path, and as many rows of hops',
  );
  // Beside a spike of the past, hops are flat at the bottom, where no pixels are compared: what is drawn stands in the legend.
  const chart = '.panel[aria-label="Latency of each hop, stacked"]';
  await page.locator(`${chart} canvas`).first().waitFor(WAIT);
  await page
    .locator(`${chart} .swatch`)
    .nth(hops - 1)
    .waitFor(WAIT);
}

/** Selects a flow in the list of the page Flow. */
async function selectFlow(page, text) {
  const row = rowOf(page, '.flow-list tbody tr', text);
  await insist(
    () => row.click(),
    async () => (await row.getAttribute('aria-current')) === 'true',
    `${text} is selected`,
  );
  await eventually(
    () => page.locator('.flow-title a', { hasText: 'events of this flow' }).getAttribute('href'),
    (address) => new URLSearchParams(address.split('?')[1]).get('filter') === text,
    'the selected flow is shown',
  );
}

export async function events(page, base) {
  await open(page, base, 'events');
  await until(page, '.event-list .sentence', (text) => text.length > 8, 'an event as a sentence');
  await page.locator('.stream-state[data-state="live"]').waitFor(WAIT);
  const total = async () => {
    const counts = await page.locator('.chip b').allTextContents();
    return counts.reduce((sum, text) => sum + number(text), 0);
  };
  const before = await eventually(total, (count) => count > 0, 'counts by kind');
  await eventually(total, (count) => count > before, 'live events arrive');
  await page.getByRole('button', { name: 'Pause' }).click();
  await until(page, '.stream-state', (text) => /paused/.test(text), 'paused');
  const lines = () => page.locator('.event-list .event-line').count();
  const shown = await lines();
  await page.getByRole('button', { name: 'Older events' }).click();
  await eventually(lines, (count) => count > shown, 'older events are added');
  await page.locator('.event-line').first().click();
  await page.locator('.event-details .facts', { hasText: 'record' }).first().waitFor(WAIT);
  await page.getByRole('button', { name: 'Resume' }).click();
  const kind = await page.locator('.chip:not(.zero)').first();
  const name = (await kind.textContent()).replace(/[\d\s+]+$/, '');
  await kind.click();
  await onlyKind(page, name);
  await kind.click();
}

const DAMAGED = 'hopwise-2026-01-02.db is damaged: its records are missing';
const GONE = 'hopwise-2026-01-03.db cannot be opened: <b>Permission denied</b>';

/** What the server notes about answers is above what they show: each sentence once, and gone with the page. */
export async function answerNotes(page, base) {
  const notes = async () => {
    const box = page.locator('.answer-notes');
    return (await box.isVisible()) ? box.locator('li').allTextContents() : [];
  };
  const pattern = /\/api\/v1\/(queues|traffic|query)\b/;
  await page.route(pattern, async (route) => {
    const answer = await route.fetch();
    const headers = { ...answer.headers(), 'hopwise-notes': JSON.stringify([DAMAGED, GONE]) };
    if (!route.request().url().endsWith('/query')) return route.fulfill({ response: answer, headers });
    // SQL has them in its answer.
    await route.fulfill({ response: answer, json: { ...(await answer.json()), notes: [DAMAGED] } });
  });
  for (const name of ['queues', 'traffic']) {
    await open(page, base, name);
    await becomes(notes, [GONE, DAMAGED].sort(), `notes of ${name}`);
  }
  await open(page, base, 'sql');
  await becomes(notes, [], 'no notes about another page');
  await page.locator('.editor').fill('SELECT kind FROM events LIMIT 1');
  await page.locator('.editor').press('Control+Enter');
  await becomes(notes, [DAMAGED], 'notes of SQL');
  await page.unroute(pattern);
  await page.locator('.editor').press('Control+Enter');
  await becomes(notes, [], 'no notes about a later answer');
}

/** The list is drawn four times a second: the filter works when only events of the chosen kind are left. */
function onlyKind(page, name) {
  return becomes(
    async () => [...new Set(await page.locator('.event-list .kind').allTextContents())],
    [name],
    'the filter by kind',
  );
}

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
  const { text } = await steadyFlow(page, base);
  await selectFlow(page, text);
  await page.getByRole('link', { name: 'watch this' }).click();
  const name = page.locator('.intent-form input[data-key="name"]');
  await eventually(
    () => name.inputValue(),
    (filled) => /^flow-/.test(filled),
    'the form is filled in',
  );
  // Nothing that was typed is lost when it is refused.
  await name.fill('no name');
  await page.getByRole('button', { name: 'Apply' }).click();
  await until(page, '.watch-flows .answer', (text) => /is not a name/.test(text), 'the refusal');
  assert.equal(await name.inputValue(), 'no name');
  await name.fill('browser');
  await page.getByRole('button', { name: 'Show plan' }).click();
  await until(page, '.watch-flows .plan', (text) => /entr(y|ies) added/.test(text), 'the plan');
  await page
    .locator('.domain-map .adds')
    .first()
    .waitFor({ ...WAIT, state: 'attached' });
  assert.doesNotMatch(await page.locator(INTENTS).textContent(), /browser/, 'a plan changes nothing');
  await page.getByRole('button', { name: 'Apply' }).click();
  const began = Date.now();
  const row = page.locator(`${INTENTS} tr`, { hasText: 'browser' });
  await row.waitFor(WAIT);
  await until(page, INTENTS, (text) => /browser(complete|seen)/.test(text), 'the verified state');
  console.log(`      verified in the browser ${Date.now() - began} ms after it was applied`);
  await insist(
    () => row.click(),
    async () => (await row.getAttribute('aria-current')) === 'true',
    'the intent is selected',
  );
  await confirm(page, 'Remove', /^Remove \S+\?$/);
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
  // The queue that is full in each burst.
  await open(page, base, 'topology/201');
  const queue = page.getByRole('link', { name: /^watch (interface \S+ )?queue 4$/ });
  await queue.first().click();
  const derived = /^Derived from (interface \S+ )?queue 4 of spine1/;
  await until(page, `${FORM} .derived`, (text) => derived.test(text), 'the queue');
  // Flows that are measured without a filter tell how many reports will come.
  assert.match(await planOf(page), /Reports[\d.]+ ?k?\/s, [\d.]+ Mb\/s \(from \d+ flows/);
  await open(page, base, 'intents/new?from=link&node=101&to=201&name=link-101-201&watch=link_utilization');
  await until(
    page,
    `${FORM} .derived`,
    (text) => /^Derived from the link leaf1 → spine1/.test(text),
    'the link',
  );
  await becomes(
    () => page.locator(`${FORM} [data-key="edges"]`).inputValue(),
    'leaf1',
    'where its packets enter',
  );
  await planOf(page);
  const flow = await eventWithFlow(page, base);
  await until(page, `${FORM} .derived`, (text) => /^Derived from an event \(new\)/.test(text), 'the event');
  await becomes(
    () => page.locator(`${FORM} [data-key="src"]`).inputValue(),
    flow.src,
    'the flow of the event',
  );
  await page.getByRole('button', { name: 'Clear' }).click();
}

/** Opens an event of a flow, in a time that has ended, so that its row stays where it is, and follows its link. Returns the flow. */
async function eventWithFlow(page, base) {
  const { now } = await read(page, base, 'status');
  const to = Math.floor(now / 1e6 / 1000) * 1000 - 1000;
  const range = { from: to - 3_600_000, to };
  const { events } = await read(
    page,
    base,
    `events?kind=new&metric=flow_path&limit=100&from=${nanos(range.from)}&to=${nanos(range.to)}`,
  );
  const found = events.find(({ flow }) => flow?.dst);
  assert.ok(found, 'a flow began in the last hour');
  const query = new URLSearchParams({
    kind: 'new',
    filter: found.text,
    from: inAddress(range.from),
    to: inAddress(range.to),
  });
  await open(page, base, `events?${query}`);
  await page.locator('.event-line').first().click();
  await page.locator('.event-details').getByRole('link', { name: 'watch this' }).first().click();
  return found.flow;
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
  await becomes(
    () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth),
    0,
    'how much wider than the screen the page is',
  );
  const asked = page.locator('.intents .armed', { hasText: 'Remove keys?' });
  let answered = false;
  // The question is withdrawn after some seconds, and then asked again.
  await insist(
    async () => {
      await page.evaluate(() => document.activeElement?.blur());
      await tabTo(page, button('Remove'), 'Remove');
      await page.keyboard.press('Enter');
      await asked.waitFor({ timeout: 2_000 });
      await page.keyboard.press('Enter');
      answered = true;
    },
    () => answered,
    'the question is answered',
  );
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
  for (const control of [apply, stop])
    await becomes(() => control.isDisabled(), true, 'a control is disabled');
  const name = page.locator(`${FORM} [data-key="name"]`);
  await name.fill('reader');
  await name.press('Enter');
  await planOf(page);
  await open(page, base, 'devices');
  await until(page, '.read-only', (text) => /may only read/.test(text), 'the reason on Devices');
  await becomes(() => stop.isDisabled(), true, 'the control on Devices is disabled');
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
const WAITING = '.panel[aria-label="Changes pending approval"]';

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
    await becomes(() => name.inputValue(), 'web', 'the name of the intent');
  };
  await edit();
  await becomes(
    () => page.locator(`${FORM} [data-key="dport"]`).inputValue(),
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
  await becomes(() => page.getByRole('button', { name: 'Edit' }).isDisabled(), true, 'Edit is disabled');
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
  await confirm(page, 'Stop all INT', 'Stop all INT?');
  await until(page, '.devices .facts', (text) => /stopped by an operator/.test(text), 'INT is stopped');
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

/** Goes back to an address. A click that missed made a step of its own. */
async function backTo(page, hash) {
  for (let steps = 0; new URL(page.url()).hash !== hash; steps += 1) {
    assert.ok(steps < 5, `${hash} is among the steps of the back button: ${page.url()}`);
    await page.goBack(WAIT);
  }
}

/** What is set on a page is in its address: a copy of it shows the same, and the back button undoes it. */
export async function addresses(page, base) {
  const order = page.locator('.flow-list').getByLabel('Order');
  const { text: flow } = await steadyFlow(page, base);
  await open(page, base, 'flow');
  await order.selectOption('reports');
  await selectFlow(page, flow);
  await addressIs(page, /^#\/flow\/[0-9a-f]{16}\?sort=reports$/, 'order and flow');
  await page.locator('.flow-list').getByLabel('Search flows').fill('10.0');
  await addressIs(page, /\?sort=reports&filter=10\.0$/, 'what was typed');
  await page.reload();
  await until(page, '.flow-title h1', (text) => /→/.test(text), 'the flow of the address');
  await becomes(() => order.inputValue(), 'reports', 'the order of the address');
  await becomes(() => page.getByLabel('Search flows').inputValue(), '10.0', 'the search of the address');
  await backTo(page, '#/flow');
  await becomes(() => order.inputValue(), 'latency', 'the order before');

  await open(page, base, 'topology');
  await page.locator('[data-metric="queue"]').click();
  await follow(page, flow);
  await addressIs(page, /^#\/topology\?lens=queue&flow=[0-9a-f]{16}$/, 'lens and flow');
  await page.reload();
  await page.locator('[data-metric="queue"][aria-pressed="true"]').waitFor(WAIT);
  await page.locator('.follow tr.selected').waitFor(WAIT);
  await backTo(page, '#/topology?lens=queue');
  await until(page, '.detail', (text) => /Nothing selected/.test(text), 'no flow');
  await backTo(page, '#/topology');
  await page.locator('[data-metric="latency"][aria-pressed="true"]').waitFor(WAIT);

  await open(page, base, 'events');
  await page.locator('.chip', { hasText: 'path' }).first().click();
  await page.getByLabel('Node').fill('101');
  await page.getByLabel('Node').press('Enter');
  await addressIs(page, /^#\/events\?kind=path_change&node=101$/, 'the filter of events');
  await page.reload();
  await becomes(() => page.getByLabel('Node').inputValue(), '101', 'the node of the address');
  await page.locator('.chip[aria-pressed="true"]', { hasText: 'path' }).waitFor(WAIT);

  await open(page, base, 'sql');
  const text = "SELECT kind, count(*) AS n FROM events WHERE kind <> '?&#%' GROUP BY kind";
  await page.locator('.editor').fill(text);
  await page.locator('#limit').selectOption('100');
  await page.locator('.editor').press('Control+Enter');
  await addressIs(page, /^#\/sql\?sql=SELECT.*&limit=100$/, 'the query');
  await page.reload();
  await until(page, '.query-output tbody tr', (row) => /[a-z]+\d+/.test(row), 'the result of the address');
  await becomes(() => page.locator('.editor').inputValue(), text, 'the statement of the address');
}

/** An address that names no page leads to the overview, also one that each object of JavaScript has. */
export async function unknownPages(page, base) {
  for (const hash of ['nothing', '__proto__/constructor', 'constructor', 'toString?last=1h']) {
    await open(page, base, 'sql');
    await open(page, base, hash);
    await page.locator('.page.overview').waitFor(WAIT);
  }
}

/** An address whose flow is neither an id nor a text says so. */
export async function noSuchFlow(page, base) {
  await open(page, base, 'flow/zzzz');
  await until(page, '.flow-detail .empty', (text) => /There is no flow “zzzz”/.test(text), 'no such flow');
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
  await becomes(() => field.inputValue(), 'port ', 'what was completed');
  await until(page, '.flow-list [role="option"]:nth-child(7)', (text) => /in/.test(text), 'operators');
  await field.fill('proto == 1 and kind == drop and port > 0');
  await until(
    page,
    '.filter-fault',
    (text) => /kind is a field of events, not of flows/.test(text),
    'the fault',
  );
  await until(page, '.filter-marks mark', (text) => text === 'kind', 'where the fault is');
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
  await becomes(
    () => events.inputValue(),
    'kind == new and metric == flow_path',
    'the filter after a reload',
  );
}

/** Keys that work on every page, and that can be turned off; names of flows can be read on a phone. */
export async function hands(page, base) {
  await open(page, base, 'overview');
  await page.locator('.live-state').waitFor(WAIT);
  // The second key must follow soon.
  await insist(
    async () => {
      await page.keyboard.press('g');
      await page.keyboard.press('f');
    },
    () => new URL(page.url()).hash.startsWith('#/flow'),
    'g f',
  );
  await until(page, '.flow-list tbody tr', (text) => /→/.test(text), 'flows');
  await page.keyboard.press('/');
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? '');
  await becomes(focused, 'Search flows', 'the field that / goes to');
  await page.keyboard.type('gt?/');
  await addressIs(page, /filter=gt%3F%2F$/, 'letters in a field are letters');
  await page.getByLabel('Search flows').fill('');
  await until(page, '.flow-list tbody tr:nth-child(2)', (text) => /→/.test(text), 'two flows');
  await page.locator('.flow-list tbody tr').first().focus();
  // Flows come and go: which row is the last one is read together with the row that has the focus.
  const row = () =>
    page.evaluate(() => {
      const focused = document.activeElement?.closest('tr');
      const last = (focused?.parentElement?.rows.length ?? 0) - 1;
      return focused?.sectionRowIndex === last ? 'last' : (focused?.sectionRowIndex ?? null);
    });
  for (const [key, expected] of [
    ['ArrowUp', 0],
    ['ArrowDown', 1],
    ['End', 'last'],
    ['ArrowDown', 'last'],
    ['Home', 0],
  ]) {
    await page.keyboard.press(key);
    await becomes(row, expected, `the row after ${key}`);
  }
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
  await eventually(
    () => name.evaluate(({ scrollWidth, clientWidth }) => ({ scrollWidth, clientWidth })),
    ({ clientWidth }) => clientWidth > 120,
    'room for the name of a flow',
  );
  await page.setViewportSize(size);
}

export async function explainsEmpty(page, base) {
  await open(page, base, 'overview');
  await until(page, '.hint', (text) => /32766/.test(text) && /hopwise demo/.test(text), 'what to do');
  await page.locator('.hint').waitFor(WAIT);
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
