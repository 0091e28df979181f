// The browser test. HOPWISE_URL names a running program; without it the mock is started (needs `npm run build` before).
// SCREENSHOTS names a directory for pictures of all pages: wide and narrow, dark and light; SETTLE is the wait in seconds
// before them, so that charts fill.
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../mock/server.mjs';
import { findChromium, launch } from './browser.mjs';
import { accessible } from './accessible.mjs';
import * as checks from './checks.mjs';
import { largeTopology } from './large.mjs';
import * as hands from './hands.mjs';
import * as paths from './paths.mjs';
import { questions } from './questions.mjs';
import { alerts } from './alerts.mjs';
import * as ranges from './ranges.mjs';
import * as traffic from './traffic.mjs';
import { open, Skipped } from './wait.mjs';

const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };
const NARROW = { width: 420, height: 860 };
const PAGES = [
  'overview',
  'alerts',
  'topology',
  'traffic',
  'queues',
  'flow',
  'paths',
  'events',
  'intents',
  'devices',
  'stores',
  'lists',
  'sql',
];

const chromium = findChromium();
if (chromium === null) {
  console.log(
    'SKIPPED ui browser test: no chromium here (apt-get install chromium, or set CHROMIUM to its path)',
  );
  process.exit(0);
}
const built = existsSync(new URL('../dist/index.html', import.meta.url));
if (!process.env.HOPWISE_URL && !built) {
  console.error('no ui/dist: run `npm run build` first');
  process.exit(2);
}

let failures = 0;

async function check(name, run) {
  const began = Date.now();
  try {
    await run();
    console.log(`ok    ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    if (error instanceof Skipped) return console.log(`SKIPPED ${name}: ${error.message}`);
    failures += 1;
    console.log(`FAIL  ${name}\n      ${error.message.split('\n').slice(0, 6).join('\n      ')}`);
  }
}

/** A page whose errors are collected. A failed request that the test itself causes is expected. */
async function newPage(context, problems) {
  const page = await context.newPage();
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    const text = `${message.text()} ${message.location().url}`;
    // Without collector memory, /dta answers 404; without a manager, so do its paths, and so does a flow that has expired.
    // This test itself reads the pixels of charts.
    if (
      !/willReadFrequently|\/query\b.*|\/api\/v1\/(dta|intents|devices|domain|filter|flows\/)|status of (400|401|403)/.test(
        text,
      )
    )
      problems.push(text);
  });
  page.on('pageerror', (error) => problems.push(error.stack ?? error.message));
  return page;
}

async function pagesOf(base, token) {
  const problems = [];
  const { context, close } = await launch(chromium, { viewport: WIDE, colorScheme: 'dark' });
  try {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const page = await newPage(context, problems);
    if (token) await page.goto(`${base}?token=${token}`);
    const all = { ...checks, alerts, paths: paths.paths, traffic: traffic.traffic };
    for (const name of PAGES) await check(name, () => all[name](page, base));
    await check('where packets are lost', () => paths.losses(page, base));
    if (process.env.HOPWISE_URL)
      await check('each change of paths of the demo: the old path and the new one', () =>
        paths.changesOfTheDemo(page, base),
      );
    await check('another time: chosen, kept, zoomed, and back', () => ranges.ranges(page, base));
    if (process.env.HOPWISE_URL)
      await check('a flow is silent between its bursts', () => ranges.burstsOfTheDemo(page, base));
    await check('a flow that has expired is found in its time', () => ranges.expired(page, base));
    await check('saved views', () => traffic.views(page, base));
    await check('notes about damaged files', () => checks.answerNotes(page, base));
    await check('what is set is in the address', () => checks.addresses(page, base));
    await check('pages that there are not', () => checks.unknownPages(page, base));
    await check('a flow that there is not', () => checks.noSuchFlow(page, base));
    await check('filters', () => checks.filters(page, base));
    await check('keys, and names on a phone', () => checks.hands(page, base));
    await check('menus that copy and save', () => hands.menus(page, base));
    await check('statements give the rows of requests', () => hands.statements(page, base));
    await check('ten questions of an operator', () => questions(page, base));
    await check('pages on paper', () => hands.paper(page, base));
    await check('UTC beside local times, units on axes', () => hands.timesAndUnits(page, base));
    await check('watch this from a queue, a link and an event', () => checks.watchThis(page, base));
    await check('intents by keyboard only, on a narrow screen', async () => {
      await page.setViewportSize(PHONE);
      await checks.intentsByKeyboard(page, base);
      await page.setViewportSize(WIDE);
    });
    await check('WCAG 2.2 AA, dark and light, wide and on a phone', async () => {
      // The mock has no exports.
      const more = process.env.HOPWISE_URL ? ['exports'] : [];
      await accessible(page, base, [...PAGES, 'overview?last=1h', 'topology/101', ...more]);
      await page.emulateMedia({ colorScheme: 'dark' });
      await page.setViewportSize(WIDE);
    });
    await check('a token that may only read', () => checks.readOnly(page, base));
    await check('no errors and no warnings on the console', () => {
      if (problems.length > 0) throw new Error(problems.slice(0, 5).join('\n'));
    });
    const directory = process.env.SCREENSHOTS;
    if (directory) await check(`screenshots in ${directory}`, () => screenshots(page, base, directory));
  } finally {
    await close();
  }
}

async function screenshots(page, base, directory) {
  mkdirSync(directory, { recursive: true });
  await page.waitForTimeout(1000 * Number(process.env.SETTLE ?? 0));
  for (const theme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme: theme });
    for (const [size, viewport] of Object.entries({ wide: WIDE, narrow: NARROW })) {
      await page.setViewportSize(viewport);
      for (const name of PAGES) {
        await open(page, base, name);
        if (name === 'topology') await page.locator('.follow tbody tr').first().click();
        if (name === 'sql') await page.getByRole('button', { name: /Hop latency over time/ }).click();
        await page.evaluate(() => window.scrollTo(0, 0));
        await page.waitForTimeout(2500);
        await page.screenshot({ path: join(directory, `${name}-${theme}-${size}.png`) });
      }
    }
  }
}

/** A network that only the mock has. */
async function largeNetwork() {
  const problems = [];
  const { context, close } = await launch(chromium, { viewport: WIDE, colorScheme: 'dark' });
  const mock = await start({ large: true });
  try {
    const page = await newPage(context, problems);
    await check('a topology of 1,000 nodes and 8,000 links', () => largeTopology(page, mock.url));
    await check('no errors and no warnings of the large map on the console', () => {
      if (problems.length > 0) throw new Error(problems.slice(0, 5).join('\n'));
    });
  } finally {
    mock.close();
    await close();
  }
}

/** States that only the mock has: nothing received yet, a token, a server that stops and returns. */
async function special() {
  const { context, close } = await launch(chromium, { viewport: WIDE });
  const page = await context.newPage();
  try {
    const empty = await start({ empty: true });
    await check('an empty system says how to begin', () => checks.explainsEmpty(page, empty.url));
    empty.close();
    const managed = await start({ managed: true });
    await check('changes wait for approval, and no intent is replaced unseen', () =>
      checks.approval(page, managed.url, managed.manager),
    );
    managed.close();
    const locked = await start({ token: 'secret' });
    await check('the page requests a token', () => checks.requestsToken(page, locked.url, 'secret'));
    await check('a server that goes away is said', async () => {
      locked.close();
      await checks.saysUnreachable(page);
    });
  } finally {
    await close();
  }
}

const given = process.env.HOPWISE_URL;
if (given) await pagesOf(given.endsWith('/') ? given : `${given}/`, process.env.HOPWISE_TOKEN);
else {
  const mock = await start();
  await pagesOf(mock.url);
  mock.close();
  await special();
}
if (built) await largeNetwork();
console.log(failures === 0 ? 'browser test passed' : `browser test: ${failures} failed`);
process.exit(failures === 0 ? 0 : 1);
