// Another time than now: chosen in the bar above the pages.
import assert from 'node:assert/strict';
import {
  addressIs,
  becomes,
  drawn,
  insist,
  known,
  nanos,
  open,
  read,
  Skipped,
  until,
  WAIT,
} from './wait.mjs';

/** As a field of a date and time takes it. */
const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

/** Chooses two times in the bar above the page. */
async function choose(page, from, to) {
  const more = page.getByRole('button', { name: 'Times …' });
  if ((await more.getAttribute('aria-expanded')) === 'false') await more.click();
  await page.getByLabel('from, local time').fill(local(from));
  await page.getByLabel('to, local time').fill(local(to));
  await page.getByRole('button', { name: 'Show', exact: true }).click();
}

const PAST = '.past strong';
const FLOWS = '.overview .panel[aria-label="Slowest flows"] tbody';

/** Flows and their latencies. Names of hosts may come after them, so flows are read as their addresses. */
function rows(page) {
  return page
    .locator(`${FLOWS} tr`)
    .evaluateAll((all) => all.map(({ cells }) => [...cells].map((cell) => cell.title || cell.textContent)));
}

/** A time is chosen, follows to other pages, survives a reload, is zoomed by dragging, and is left by the back button. */
export async function ranges(page, base) {
  const { first, last } = await known(page, base);
  if (last - first < 120_000)
    throw new Skipped('the program is too young: it has no two minutes of the past');
  await open(page, base, 'overview');
  await page.locator('.live-state').waitFor(WAIT);
  const from = Math.max(first, last - 600_000);
  await choose(page, from, last);
  await addressIs(page, /^#\/overview\?from=\d{4}-.*&to=\d{4}-/, 'the range');
  await until(page, PAST, (text) => /–/.test(text), 'the bar of another time');
  await until(page, `${FLOWS} tr`, (text) => /→/.test(text), 'flows of that time');
  await drawn(page, '.panel[aria-label="Reports per second"]');
  await drawn(page, '.panel[aria-label="Greatest hop latency"]');
  const shown = await rows(page);
  const chosen = page.url();
  const isChosen = (what) => becomes(() => page.url(), chosen, what);
  await page.reload();
  await until(page, `${FLOWS} tr`, (text) => /→/.test(text), 'flows after a reload');
  await becomes(() => rows(page), shown, 'the same content after a reload');
  await isChosen('the address after a reload');

  await page.getByRole('link', { name: 'Topology', exact: true }).click();
  await until(page, '.map-summary', (text) => /^\d+ nodes, \d+ link/.test(text), 'the map of that time');
  await addressIs(page, /^#\/topology\?.*from=.*to=/, 'the range follows to the next page');
  await page.getByRole('link', { name: 'Events', exact: true }).click();
  await until(page, '.event-list .sentence', (text) => text.length > 8, 'events of that time');
  await until(page, '.stream-state', (text) => /as stored/.test(text), 'nothing is live');
  await page.goBack();
  await page.goBack();
  await isChosen('back twice');

  await drawn(page, '.panel[aria-label="Reports per second"]');
  // Panels above that are filled meanwhile move it.
  await insist(
    async () => {
      const over = page.locator('.panel[aria-label="Reports per second"] .u-over');
      await over.scrollIntoViewIfNeeded();
      const plot = await over.boundingBox();
      const y = plot.y + plot.height / 2;
      await page.mouse.move(plot.x + plot.width * 0.25, y);
      await page.mouse.down();
      await page.mouse.move(plot.x + plot.width * 0.5, y, { steps: 5 });
      await page.mouse.up();
    },
    () => page.url() !== chosen,
    'the time that was drawn over',
  );
  const drawnOver = new URLSearchParams(page.url().split('?').pop());
  const length = Date.parse(drawnOver.get('to')) - Date.parse(drawnOver.get('from'));
  assert.ok(
    Math.abs(length - (last - from) / 4) < 0.1 * (last - from),
    `${length} ms of ${last - from} were drawn`,
  );
  await page.goBack();
  await until(page, `${FLOWS} tr`, (text) => /→/.test(text), 'the time before the zoom');
  await isChosen('back from the zoom');
  await page.getByRole('button', { name: 'back to live' }).click();
  await addressIs(page, /^#\/overview$/, 'now');
  await until(page, '.verdict strong', (text) => text.length > 10, 'the live page');
  await page.locator('.past').waitFor({ ...WAIT, state: 'hidden' });
}

/** A flow that sends for 15 ms every 20 s is silent in between. Of the past that the demo has simulated, to which nothing is added. */
export async function burstsOfTheDemo(page, base) {
  const { first, start } = await known(page, base);
  if (start - first < 60_000) throw new Skipped('the demo has no minute of the past: start it with --past');
  const minutes = Math.floor((start - first) / 60_000);
  const span = `from=${nanos(first)}&to=${nanos(first + minutes * 60_000)}`;
  const { flows } = await read(page, base, `flows?sort=latency&limit=2000&${span}`);
  const burst = flows.find(({ flow }) => flow.dport === 9000);
  const { series } = await read(
    page,
    base,
    `flows/${encodeURIComponent(burst.text)}/history?${span}&limit=10000`,
  );
  // A value ends with the second of its burst.
  const longest = series.slice(1).reduce((most, { ts }, i) => {
    const { hops, ts: since } = series[i];
    return hops.length === 0 ? most : Math.max(most, (ts - since) / 1e9);
  }, 0);
  const gaps = series.filter(({ hops }) => hops.length === 0).length;
  assert.ok(gaps >= 3 && longest < 2, `${burst.text}: ${gaps} silences, and a value for ${longest} s`);
}

/** A flow that is no longer there is found in a time in which it was. */
export async function expired(page, base) {
  const { first, last } = await known(page, base);
  const list = async (query) => (await read(page, base, `flows?limit=2000&${query}`)).flows;
  const present = new Set((await list('sort=last_seen')).map(({ text }) => text));
  const then = await list(`sort=reports&from=${nanos(first)}&to=${nanos(last)}`);
  const gone = then.find(({ text }) => !present.has(text));
  if (!gone) throw new Skipped('no flow has expired yet');
  await open(page, base, `flow/${encodeURIComponent(gone.text)}`);
  await until(page, '.flow-detail', (text) => /no longer known/.test(text), 'it is not there now');
  await choose(page, first, last);
  await until(page, '.flow-title h1', (text) => /→/.test(text), 'the flow as it was');
  await until(page, '.flow-title', (text) => /latency .* to .*mean|reports/.test(text), 'its latencies');
  await becomes(
    () => page.locator('.panel[aria-label="Hops"] tbody tr').count(),
    gone.path.length,
    'hops of its path then',
  );
  await page.getByLabel('Search flows').fill(`${gone.flow.src}`);
  await until(page, '.flow-list tbody tr', (text) => text.includes('→'), 'it is in the list');
}
