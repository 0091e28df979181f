// Alerts: what is wrong, the guilty queue and flow, what people say about it, and a rule that is tried.
import assert from 'node:assert/strict';
import { addressIs, open, read, until, WAIT } from './checks.mjs';

const LIST = '.panel[aria-label="Alerts"] tbody';
const DETAIL = '.panel[aria-label="Selected alert"]';
const TRIAL = '.panel[aria-label="Try a rule on this time"]';
/** The flows of the burst send to this port: nobody else does. */
const GUILTY = ':9000';

export async function alerts(page, base) {
  await open(page, base, 'alerts');
  const guilty = page.locator(`${LIST} tr`, { hasText: 'deep queue' }).filter({ hasText: GUILTY }).first();
  // A program that has just started has no burst yet.
  await guilty.waitFor(WAIT);
  await atTheWorstQueue(page, base);
  await guilty.click();
  await addressIs(page, /^#\/alerts\?alert=[0-9a-f]{16}/, 'the alert in the address');
  await until(page, `${DETAIL} .facts`, (text) => /queue occupancy \d.* > /.test(text), 'why');
  await page.reload();
  await until(page, `${DETAIL} h3`, (text) => text.includes(GUILTY), 'the alert after a reload');
  await leadsToTheQueue(page);
  await open(page, base, 'alerts');
  await saidAbout(page);
  await tried(page, base);
  await fits(page);
}

/** Alerts of the burst's flows are at the queue that was deepest. Others that pass it then have alerts there, too. */
async function atTheWorstQueue(page, base) {
  const now = Date.now();
  const span = `from=${now - 900_000}000000&to=${now}000000`;
  const deep = (await read(page, base, 'alerts?limit=2000')).alerts.filter(
    ({ rule }) => rule === 'deep queue',
  );
  const [row] = (await read(page, base, `queues?metric=queue_occupancy&${span}`)).rows;
  const places = deep.filter(({ flow }) => flow.dport === 9000).map(({ node, queue }) => `${node}.${queue}`);
  assert.ok(places.includes(`${row.node}.${row.queue}`), `${row.node}.${row.queue} is in ${places}`);
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

/** One alert is acknowledged, and one silenced; the number beside the tab follows. */
async function saidAbout(page) {
  const badge = page.locator('nav .badge');
  const open = page.locator(`${LIST} tr:has(td.bad)`).first();
  if ((await open.count()) > 0) {
    const rule = await open.locator('td').nth(1).innerText();
    await open.click();
    await page.getByLabel('Comment').fill('seen');
    const button = page.getByRole('button', { name: 'Acknowledge', exact: true });
    // It may end just now: then nobody can acknowledge it.
    if (await button.isVisible()) {
      await button.click();
      await until(
        page,
        `${DETAIL} .facts`,
        (text) => /acknowledgedby .*: seen/.test(text),
        `${rule} is acknowledged`,
      );
      await page.getByRole('button', { name: 'Take back' }).click();
      await badge.waitFor(WAIT);
    }
  } else await page.locator(`${LIST} tr`).first().click();
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
  assert.match(await page.locator(`${TRIAL} .filter-marks mark`).innerText(), /latencie/);
  await field.fill('max(queue_occupancy) > 64k');
  await field.press('Enter');
  await until(
    page,
    '.trial-answer',
    (text) => /^It would have fired at most (once|[\d\s]+ times) for [\d\s]+ flow/.test(text),
    'how often',
  );
  assert.ok((await page.locator('.trial-chart rect').count()) > 0, 'when');
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
  await page.waitForTimeout(300);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 390, `the page is ${width} px wide`);
  await page.setViewportSize(size);
}
