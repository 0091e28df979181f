// What is on screen, taken away: as curl, SQL or a command of hopwise, as CSV and PNG, and on paper.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cellByKeys } from './checks.mjs';
import {
  becomes,
  eventually,
  inAddress,
  insist,
  known,
  nanos,
  open,
  read,
  Skipped,
  until,
  WAIT,
} from './wait.mjs';

/** Pages with what must be there before they are complete. */
export const PAGES = [
  ['overview', '.panel[aria-label="Slowest flows"] tbody tr'],
  ['topology', '.follow tbody tr'],
  ['queues', '.heat canvas'],
  ['flow', '.panel[aria-label="Hops"] tbody tr'],
  ['paths', '.panel[aria-label="Path changes"] tbody tr'],
  ['events', '.event-list .sentence'],
  ['alerts', '.panel[aria-label="Alerts"] tbody tr'],
  ['intents', '.domain-map svg circle'],
  ['devices', '.panel[aria-label="Devices"] tbody tr'],
  ['stores', '.panel[aria-label="Stores"] tbody tr'],
  ['lists', '.entries tbody tr'],
  ['traffic', '.panel[aria-label="Groups"] tbody tr'],
];

/** Opens the nth menu of the page. Returns its label and what it offers. */
async function openMenu(page, at) {
  const box = page.locator('main .hands').nth(at);
  const button = box.locator('.menu-button');
  await button.click();
  const items = await box.locator('[role="menuitem"]').allTextContents();
  return { box, label: await button.getAttribute('aria-label'), items };
}

async function choose({ box }, item) {
  await box.getByRole('menuitem', { name: item, exact: true }).click();
}

/** The text that an item copies. */
async function copied(page, menu, item) {
  await page.evaluate(() => navigator.clipboard.writeText(''));
  await choose(menu, item);
  return eventually(
    () => page.evaluate(() => navigator.clipboard.readText()),
    (text) => text !== '',
    `${menu.label}: ${item}`,
  );
}

/** The file that an item saves. */
async function saved(page, menu, item) {
  const [file] = await Promise.all([page.waitForEvent('download', WAIT), choose(menu, item)]);
  return { name: file.suggestedFilename(), bytes: readFileSync(await file.path()) };
}

/** The mock is in this process, which must not wait. */
function shell(line) {
  const options = { encoding: 'utf8', maxBuffer: 1 << 28, timeout: WAIT.timeout };
  return new Promise((resolve) =>
    execFile('sh', ['-c', line], options, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : (error.code ?? 1), stdout, stderr }),
    ),
  );
}

/** Each line of a copied curl answers what it asks. */
async function checkCurl(label, text) {
  for (const line of text.split('\n')) {
    const { status, stdout, stderr } = await shell(line);
    assert.equal(status, 0, `${label}: ${line}: ${stderr}`);
    assert.equal(JSON.parse(stdout).error, undefined, `${label}: ${line}`);
  }
}

async function checkCommand(label, line) {
  assert.match(line, /^hopwise [a-z]/, label);
  const program = process.env.HOPWISE_PROGRAM;
  if (!program) return;
  const once = line.replace(/^hopwise top/, 'hopwise top --once');
  const { status, stderr } = await shell(once.replace(/^hopwise/, program));
  assert.equal(status, 0, `${label}: ${line}: ${stderr}`);
}

/** A picture on white with something on it. */
async function checkPng(page, label, bytes) {
  const found = await page.evaluate(async (base64) => {
    const data = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const image = await createImageBitmap(new Blob([data], { type: 'image/png' }));
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, image.width, image.height).data;
    const seen = new Set();
    let light = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
      if (pixels[i] + pixels[i + 1] + pixels[i + 2] > 600) light += 1;
    }
    return { corner: [...pixels.slice(0, 3)], colours: seen.size, light: (light * 4) / pixels.length };
  }, bytes.toString('base64'));
  assert.deepEqual(found.corner, [255, 255, 255], `${label}: the background`);
  assert.ok(found.light > 0.5, `${label}: ${Math.round(found.light * 100)} % of the picture is light`);
  assert.ok(found.colours > 4, `${label}: ${found.colours} colours`);
}

/** Every menu of every page: each thing that it offers works. */
export async function menus(page, base) {
  const hasCurl = spawnSync('curl', ['--version']).status === 0;
  let seen = 0;
  for (const [name, ready] of PAGES) {
    await open(page, base, name);
    const there = page.locator(`${ready}:visible`).first();
    await page.locator(`${ready}:visible, main > div > .empty:visible`).first().waitFor(WAIT);
    // A program without a manager, or without memory.
    if ((await there.count()) === 0) continue;
    const count = await page.locator('main .hands').count();
    assert.ok(count > 0, `${name} has no menu`);
    for (let at = 0; at < count; at += 1) {
      if (!(await page.locator('main .hands').nth(at).isVisible())) continue;
      seen += 1;
      await checkMenu(page, name, at, hasCurl);
    }
  }
  console.log(`      ${seen} menus`);
}

async function checkMenu(page, name, at, hasCurl) {
  const { items, label } = await openMenu(page, at);
  const again = async () => openMenu(page, at);
  assert.ok(items.includes('link') && items.includes('curl') && items.includes('PNG'), `${label}: ${items}`);
  await page.keyboard.press('Escape');
  const text = await copied(page, await again(), 'curl');
  if (hasCurl) await checkCurl(label, text);
  assert.equal(await copied(page, await again(), 'link'), page.url());
  if (items.includes('hopwise command'))
    await checkCommand(label, await copied(page, await again(), 'hopwise command'));
  // A table without rows has no file.
  const menu = await again();
  const file = await Promise.race([
    saved(page, menu, 'CSV'),
    page
      .locator('.menu-said', { hasText: 'nothing to save' })
      .first()
      .waitFor(WAIT)
      .then(() => null),
  ]);
  if (file === null) return;
  assert.match(file.name, new RegExp(`^hopwise_${name}(_[a-z0-9-]+)?(_\\d{8}T\\d{6}Z)+\\.csv$`), label);
  const lines = file.bytes.toString().split('\r\n');
  assert.ok(lines.length > 2, `${label}: ${lines.length} lines`);
  // Of the tables of a page, one: they are drawn alike, and a picture takes a second.
  const isDrawn = await menu.box.evaluate((box) => box.closest('.panel')?.querySelector('canvas') !== null);
  if (!isDrawn && at > 0) return;
  const picture = await saved(page, await again(), 'PNG');
  assert.match(picture.name, /\.png$/);
  await checkPng(page, `${name}: ${label}`, picture.bytes);
}

/** The statement that a panel copies gives the rows of its request. */
export async function statements(page, base) {
  const probe = await page.request.get(`${base}api/v1/filter`).catch(() => null);
  if (!probe?.ok()) throw new Skipped('the mock has no store');
  const { first, last: to } = await known(page, base);
  const from = Math.max(first, to - 600_000);
  if (from >= to) throw new Skipped('the program is too young: it has no whole minute of the past');
  const range = `from=${inAddress(from)}&to=${inAddress(to)}`;
  const api = (path, query) => read(page, base, `${path}?from=${nanos(from)}&to=${nanos(to)}&${query}`);
  const query = async (sql) => {
    const answer = await page.request.post(`${base}api/v1/query`, { data: { sql, limit: 10_000 } });
    // Times have more digits than a number.
    const { columns, rows, error } = JSON.parse(
      (await answer.text()).replace(/(?<=[[,])(\d{16,})(?=[\],])/g, '"$1"'),
    );
    assert.equal(error, undefined, sql);
    return rows.map((row) => Object.fromEntries(row.map((cell, i) => [columns[i], cell])));
  };
  const copiedOf = async (panel, item) => {
    const box = page.locator(`.panel[aria-label="${panel}"] > .panel-head .hands`);
    await box.locator('.menu-button').click();
    return copied(page, { box, label: panel }, item);
  };
  const statement = (panel) => copiedOf(panel, 'SQL');
  await open(page, base, `overview?${range}`);
  await until(page, '.panel[aria-label="Events by kind"] tbody tr', (text) => /\d/.test(text), 'kinds');
  await until(page, '.panel[aria-label="Slowest flows"] tbody tr', (text) => /→/.test(text), 'flows');
  const activity = await api('activity', 'columns=300');
  const kinds = await query(await statement('Events by kind'));
  assert.deepEqual(Object.fromEntries(kinds.map(({ kind, events }) => [kind, events])), activity.kinds);
  const rates = await query(await statement('Events per second'));
  assert.deepEqual(
    rates.map(({ ts, events }) => [Number(ts), events]),
    activity.points.filter(({ events }) => events > 0).map(({ ts, events }) => [ts, events]),
  );
  const { flows } = await api('flows', 'sort=latency&limit=10');
  assert.ok(flows.length > 3, 'flows of that time');
  const slowest = await query(await statement('Slowest flows'));
  // Equal values may stand in another order.
  const sorted = (rows) => rows.map((row) => JSON.stringify(row)).sort();
  assert.deepEqual(
    slowest.map(({ flow_latency }) => flow_latency),
    flows.map(({ flow_latency }) => flow_latency),
  );
  const last = flows[flows.length - 1].flow_latency;
  assert.deepEqual(
    sorted(slowest.filter(({ flow_latency }) => flow_latency > last)),
    sorted(
      flows
        .filter(({ flow_latency }) => flow_latency > last)
        .map(({ text, flow_latency, reports }) => ({ flow: text, flow_latency, reports })),
    ),
  );

  await open(page, base, `queues?${range}`);
  await page.locator('.heat canvas').waitFor(WAIT);
  // The columns are as many as the page has room for: the request says how many.
  await becomesEqual(async () => {
    const asked = await copiedOf('Queues over time', 'curl');
    const heat = await (await page.request.get(/https?:[^\s'"]+/.exec(asked)[0])).json();
    const cells = heat.rows.flatMap(({ node, interface: port, queue, values }) =>
      values.flatMap((value, i) =>
        value === null ? [] : [{ ts: heat.from + i * heat.column, node, interface: port, queue, value }],
      ),
    );
    assert.ok(cells.length > 10, 'cells of the heat map');
    const found = await query(await copiedOf('Queues over time', 'SQL'));
    return [sorted(found.map((row) => ({ ...row, ts: Number(row.ts) }))), sorted(cells)];
  }, 'cells of the heat map');

  await open(page, base, `events?kind=drop,path_change&${range}`);
  await until(page, '.event-list .sentence', (text) => text.length > 8, 'events of that time');
  const both = await Promise.all(
    ['drop', 'path_change'].map((kind) => api('events', `kind=${kind}&limit=1000`)),
  );
  const newest = both.flatMap((answer) => answer.events).sort((a, b) => b.ts - a.ts);
  // Rare kinds come one after the other.
  await becomesEqual(async () => {
    const listed = await page.locator('.event-list .event-line').count();
    const events = await query(await copiedOf('Events', 'SQL'));
    // JSON numbers lose the last digits of a time.
    return [
      events.map(({ id }) => id).sort(),
      newest
        .slice(0, listed)
        .map(({ id }) => id)
        .sort(),
    ];
  }, 'events of the list');
}

/** Waits until both of a pair are the same. */
async function becomesEqual(pair, what) {
  let last = [];
  const isSame = ([one, other]) => JSON.stringify(one) === JSON.stringify(other);
  await eventually(
    async () => {
      last = await pair();
      return isSame(last);
    },
    (same) => same,
    what,
  ).catch((error) => {
    assert.deepEqual(last[0], last[1], what);
    throw error;
  });
}

/** On paper: no controls, light colours, charts as wide as the paper, range and time of printing; and then the screen as before. */
export async function paper(page, base) {
  for (const [name, ready] of PAGES) {
    await open(page, base, name);
    await page.locator(`${ready}:visible, main > div > .empty:visible`).first().waitFor(WAIT);
    await page.evaluate(() => {
      // What the printer sees is measured while it prints.
      const measure = () => {
        const frame = document.querySelector('.frame').getBoundingClientRect();
        const box = (element) => element.getBoundingClientRect();
        const shown = (selector) =>
          [...document.querySelectorAll(selector)].filter((element) => box(element).height > 0).length;
        window.measured = {
          theme: document.documentElement.dataset.theme,
          head: document.querySelector('.print-head').innerText,
          controls: shown('nav, .time-bar, .hands, main input[type="search"].find'),
          wide: [...document.querySelectorAll('main canvas')].filter(
            (canvas) => box(canvas).right > frame.right + 1,
          ).length,
          narrow: [...document.querySelectorAll('main .chart')].filter(
            (chart) =>
              box(chart).width > 0 &&
              Math.abs(box(chart).width - box(chart.querySelector('canvas') ?? chart).width) > 2,
          ).length,
        };
      };
      window.addEventListener('beforeprint', () => queueMicrotask(measure), { once: true });
    });
    const before = await page.evaluate(() => document.documentElement.dataset.theme ?? '');
    const pdf = await page.pdf({ preferCSSPageSize: true, printBackground: true });
    assert.ok(pdf.length > 5_000, `${name}: ${pdf.length} bytes`);
    const { head, ...measured } = await page.evaluate(() => window.measured);
    assert.deepEqual(measured, { theme: 'light', controls: 0, wide: 0, narrow: 0 }, name);
    assert.match(head, /hopwise[^]*UTC[^]*printed \d{4}-\d\d-\d\d/, name);
    await becomes(
      () => page.evaluate(() => document.documentElement.dataset.theme ?? ''),
      before,
      `${name}: the theme as before`,
    );
    await page.locator('nav').waitFor(WAIT);
  }
}

/** Local times have UTC beside them, and every axis says its unit. */
export async function timesAndUnits(page, base) {
  await open(page, base, 'overview');
  for (const [panel, unit] of [
    ['Reports per second', 'reports/s'],
    ['Events per second', 'events/s'],
  ]) {
    const over = page.locator(`.panel[aria-label="${panel}"] .u-over`);
    const tip = page.locator(`.panel[aria-label="${panel}"] .chart-tip`);
    // A chart that is drawn anew takes its text with it.
    await insist(
      () => over.hover(),
      async () => {
        const text = (await tip.textContent()) ?? '';
        return /UTC/.test(text) && text.includes(unit);
      },
      panel,
    );
  }
  await open(page, base, 'queues');
  await until(
    page,
    '.queues .panel-head .legend',
    (text) => /device units/.test(text),
    'the unit of the heat map',
  );
  await cellByKeys(page, (text) => /UTC/.test(text), 'the time of a cell');
  await open(page, base, 'events');
  await page.locator('.event-line time').first().waitFor(WAIT);
  assert.match((await page.locator('.event-line time').first().getAttribute('title')) ?? '', /UTC$/);
}
