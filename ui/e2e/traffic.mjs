// Traffic by what is chosen, and saved views.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { addressIs, becomes, drawn, eventually, open, read, Skipped, until, WAIT } from './wait.mjs';

const ROWS = '.traffic .panel[aria-label="Groups"] tbody tr';

/** Traffic is stacked by source, a group is clicked, and the drawing, the order and the filter are in the address. */
export async function traffic(page, base) {
  await open(page, base, 'traffic');
  // What the page shows, of the last whole minutes.
  const { total } = await read(page, base, 'traffic?by=src');
  if (total.count === 0) throw new Skipped('no minute has ended since the program began');
  await until(page, ROWS, (text) => /\d/.test(text), 'groups');
  await drawn(page, '.traffic-drawing');
  await page.locator(ROWS).first().click();
  await addressIs(page, /^#\/traffic\?.*filter=src\+%3D%3D\+/, 'the group is in the filter');
  // Whichever was the first one when it was clicked.
  const filter = new URLSearchParams(page.url().split('?')[1]).get('filter');
  const named = await nameOf(page, base, filter.replace(/^src == /, ''));
  await becomes(
    () => page.locator(`${ROWS} td:nth-child(2)`).allTextContents(),
    [named, 'Total'],
    'its group alone',
  );
  await page.goBack();
  await addressIs(page, /^#\/traffic$/, 'back to all');
  await page.waitForFunction((rows) => document.querySelectorAll(rows).length > 2, ROWS, WAIT);

  await page.getByLabel('and by', { exact: true }).selectOption('dport');
  await page.getByLabel('Drawing').selectOption('sankey');
  await addressIs(page, /by=src%2Cdport.*draw=sankey/, 'two dimensions and a drawing');
  await until(
    page,
    '.sankey',
    (text) => /Source host/.test(text) && /Destination port/.test(text),
    'a Sankey',
  );
  await eventually(
    () => page.locator('.sankey rect').count(),
    (bars) => bars >= 3,
    'bars',
  );
  await page.locator('.sankey rect[role="button"]').first().focus();
  await page.keyboard.press('Enter');
  await addressIs(page, /filter=/, 'a bar is in the filter');
  await page.getByRole('button', { name: 'Clear filter' }).click();

  await page.getByLabel('Drawing').selectOption('lines');
  await drawn(page, '.traffic-drawing');
  const count = page.getByRole('columnheader', { name: 'Reports' });
  await becomes(() => count.getAttribute('aria-sort'), 'descending', 'the usual order');
  await count.getByRole('button').click();
  await addressIs(page, /sort=-count/, 'the order');
  const address = page.url();
  await page.reload();
  await until(page, ROWS, (text) => /\d/.test(text), 'groups after a reload');
  await becomes(() => page.url(), address, 'the address after a reload');
  await eventually(
    async () => {
      const cells = await page.locator(`${ROWS} td:nth-child(3)`).allInnerTexts();
      return cells.slice(0, -1).map((text) => Number(text.replace(/\D/g, '')));
    },
    ([one, other, third]) => one <= other && other <= third,
    'the first three groups, ascending',
  );
}

/** The name of a host, or its address. */
async function nameOf(page, base, address) {
  const { hosts = [] } = await read(page, base, 'names').catch(() => ({}));
  return hosts.find((host) => host.address === address)?.name ?? address;
}

/** A view is saved, opened by its name, exported, deleted and imported again. */
export async function views(page, base) {
  await open(page, base, 'traffic?by=dst&draw=lines');
  await until(page, '.traffic', (text) => /Groups/.test(text), 'the page');
  await page.locator('main').focus();
  await page.keyboard.press('v');
  const dialog = page.getByRole('dialog', { name: 'Saved views' });
  await dialog.getByLabel('Save this page as').fill('by destination');
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await until(page, '.views', (text) => /by destination/.test(text), 'the saved view');
  const loading = page.waitForEvent('download');
  await dialog.getByRole('button', { name: 'Export' }).click();
  const file = await (await loading).path();
  const kept = { name: 'by destination', address: '#/traffic?by=dst&draw=lines' };
  assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')), { views: [kept] });
  await dialog.getByRole('button', { name: 'Delete by destination' }).click();
  await until(page, '.views', (text) => text === '', 'no view');
  await dialog.getByLabel('File of saved views').setInputFiles(file);
  await until(page, '.views', (text) => /by destination/.test(text), 'the imported view');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await open(page, base, 'events');
  await page.getByRole('button', { name: 'Saved views' }).click();
  await dialog.getByRole('link', { name: 'by destination' }).click();
  await addressIs(page, /^#\/traffic\?by=dst&draw=lines$/, 'the view is opened');
  await until(page, '.traffic-controls', () => true, 'its page');
}
