// Alerts: what is wrong, the guilty queue and flow, what people say about it, and a rule that is tried.
import { addressIs, eventually, insist, known, nanos, open, read, rowOf, until, WAIT } from './wait.mjs';

const LIST = '.panel[aria-label="Alerts"] tbody';
const DETAIL = '.panel[aria-label="Selected alert"]';
const TRIAL = '.panel[aria-label="Try a rule on this time"]';
/** The flows of the burst send to this port: nobody else does. */
const PORT = 9000;
const GUILTY = `:${PORT}`;

export async function alerts(page, base) {
  const alert = await firing(page, base);
  await atTheWorstQueue(page, base);
  await open(page, base, 'alerts');
  const row = rowOf(page, `${LIST} tr`, alert.text).filter({ hasText: 'deep queue' });
  await insist(
    () => row.click(),
    () => new URLSearchParams(page.url().split('?')[1]).get('alert') === alert.id,
    'the alert in the address',
  );
  await until(page, `${DETAIL} .facts`, (text) => /queue occupancy \d.* > /.test(text), 'why');
  await page.reload();
  await until(page, `${DETAIL} h3`, (text) => text.includes(GUILTY), 'the alert after a reload');
  await leadsToTheQueue(page);
  await open(page, base, `alerts?alert=${alert.id}`);
  await until(page, `${DETAIL} h3`, (text) => text.includes(GUILTY), 'the alert by its address');
  await acknowledged(page);
  await silenced(page);
  await tried(page, base);
  await fits(page);
}

/** The rows of alerts at queues of the last quarter of an hour. */
async function deepQueues(page, base) {
  const { alerts } = await read(page, base, 'alerts?limit=2000');
  return alerts.filter(({ rule }) => rule === 'deep queue');
}

/**
 * An alert of a flow of the burst. It began since the program did, so that the flight recorder has its packets, and lasts until the
 * flow's next burst.
 */
async function firing(page, base) {
  const { start } = await known(page, base);
  const found = await eventually(
    async () =>
      (await deepQueues(page, base)).find(
        ({ flow, state, since }) => flow.dport === PORT && state === 'firing' && since / 1e6 > start,
      ),
    (alert) => alert !== undefined,
    'an alert of the burst',
  );
  return found;
}

/** Alerts of the burst's flows are at the queue that was deepest. Others that pass it then have alerts there, too. */
async function atTheWorstQueue(page, base) {
  await eventually(
    async () => {
      const now = Date.now();
      const span = `from=${nanos(now - 900_000)}&to=${nanos(now)}`;
      const [row] = (await read(page, base, `queues?metric=queue_occupancy&${span}`)).rows;
      const places = (await deepQueues(page, base))
        .filter(({ flow }) => flow.dport === PORT)
        .map(({ node, queue, interface: port }) => `${node}.${queue}.${port}`);
      return { worst: `${row.node}.${row.queue}.${row.interface}`, places };
    },
    ({ worst, places }) => places.includes(worst),
    'the worst queue is among those of the alerts',
  );
}

/** Two clicks from the alert to those who filled the queue. */
async function leadsToTheQueue(page) {
  await page.locator(DETAIL).getByRole('link', { name: 'The queue' }).click();
  await addressIs(page, /^#\/queues\?.*at=\d+/, 'the queue in that time');
  await until(
    page,
    '.burst .verdict-text',
    (text) => text.length > 20 && text !== 'Reading …',
    'who filled it',
  );
  const who = '.panel[aria-label="Who filled the queue"]';
  await until(page, who, (text) => text.includes(GUILTY), 'the guilty flows are named');
}

/**
 * The alert is acknowledged, and that is taken back; the number beside the tab follows. Each burst ends the alert and begins it anew,
 * which nobody has acknowledged.
 */
async function acknowledged(page) {
  const facts = page.locator(`${DETAIL} .facts`);
  const button = page.getByRole('button', { name: 'Acknowledge', exact: true });
  const back = page.getByRole('button', { name: 'Take back' });
  await insist(
    async () => {
      await page.getByLabel('Comment').fill('seen');
      await button.click({ timeout: 5_000 });
    },
    async () => /acknowledgedby .*: seen/.test((await facts.textContent()) ?? ''),
    'it is acknowledged',
  );
  await insist(
    async () => {
      if (await back.isVisible()) await back.click({ timeout: 5_000 });
    },
    async () => !/acknowledgedby/.test((await facts.textContent()) ?? ''),
    'nobody has acknowledged it',
  );
  await page.locator('nav .badge').waitFor(WAIT);
}

/** It is silenced for an hour, and the silence is ended. */
async function silenced(page) {
  await page.getByLabel('What to silence').selectOption({ index: 0 });
  await page.getByLabel('How long').selectOption('3600');
  await page.getByRole('button', { name: 'Silence', exact: true }).click();
  const item = page.locator('.silences li').first();
  await until(page, '.silences li', (text) => /rule == .*until \d{4}-/.test(text), 'the silence');
  await item.getByRole('button', { name: /End silence/ }).click();
  await item.waitFor({ ...WAIT, state: 'detached' });
}

/** A rule with a fault is underlined; the right one is tried on the past, and cannot be enabled without a configuration file. */
async function tried(page, base) {
  await open(page, base, 'alerts');
  const field = page.getByLabel('Condition of a rule');
  await field.fill('flow_latencie > 5ms');
  await field.press('Enter');
  await until(page, `${TRIAL} .filter-fault`, (text) => text.length > 5, 'what is wrong');
  await until(page, `${TRIAL} .filter-marks mark`, (text) => /latencie/.test(text), 'where it is wrong');
  await field.fill('max(queue_occupancy) > 64k');
  await field.press('Enter');
  await until(
    page,
    '.trial-answer',
    (text) => /^It would have fired (at most )?(once|[\d\s]+ times) for [\d\s]+ flow/.test(text),
    'how often',
  );
  await page
    .locator('.trial-chart rect')
    .first()
    .waitFor({ ...WAIT, state: 'attached' });
  await addressIs(page, /when=max%28queue_occupancy%29/, 'the rule in the address');
  await page.getByLabel('Name of the rule').fill('of the test');
  await page.getByRole('button', { name: 'Enable', exact: true }).click();
  await until(
    page,
    '.trial-result',
    (text) => /\[\[rules\]\]\s*name = "of the test"/.test(text),
    'the text to put there',
  );
}

async function fits(page) {
  const size = page.viewportSize();
  await page.setViewportSize({ width: 390, height: 844 });
  await eventually(
    () => page.evaluate(() => document.documentElement.scrollWidth),
    (width) => width <= 390,
    'the width of the page',
  );
  await page.setViewportSize(size);
}
