// Each page without a violation of WCAG 2.2 AA by axe, in both themes, wide and on a phone.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { PAGES } from './hands.mjs';
import { eventually, open, WAIT } from './wait.mjs';

const AXE = new URL('../node_modules/axe-core/axe.min.js', import.meta.url);
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa'];
const SIZES = { wide: { width: 1400, height: 900 }, phone: { width: 390, height: 844 } };

/** What axe finds on the page as it is. */
export async function violations(page) {
  await page.evaluate(readFileSync(AXE, 'utf8'));
  return page.evaluate(async (tags) => {
    const { violations } = await window.axe.run(document, { runOnly: { type: 'tag', values: tags } });
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary ?? ''}`),
    );
  }, TAGS);
}

/** What must be there before a page is complete; without it, a page says that there is nothing to show. */
const READY = Object.fromEntries([
  ...PAGES,
  ['sql', '.editor'],
  ['exports', '.page.exports'],
  ['overview?last=1h', '.panel[aria-label="Slowest flows"] tbody tr'],
  ['topology/101', '.detail .facts dt'],
]);

async function isComplete(page, name) {
  await page.locator(`${READY[name]}:visible, main > div > .empty:visible`).first().waitFor(WAIT);
  // Charts and tables that come later move what is below them.
  let before = -1;
  await eventually(
    async () => {
      const length = await page.locator('main').evaluate((main) => main.scrollHeight);
      const isSteady = length === before;
      before = length;
      return isSteady;
    },
    (isSteady) => isSteady,
    `${name} is complete`,
  );
}

/** Also: no page is wider than the screen. */
export async function accessible(page, base, pages) {
  const found = [];
  for (const theme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme: theme });
    for (const [size, viewport] of Object.entries(SIZES)) {
      await page.setViewportSize(viewport);
      for (const name of pages) {
        await open(page, base, name);
        await isComplete(page, name);
        const place = `${name}, ${theme}, ${size}`;
        found.push(...(await violations(page)).map((text) => `${place}: ${text}`));
        const wider = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        if (wider > 0) found.push(`${place}: ${wider} px wider than the screen`);
      }
    }
  }
  assert.deepEqual(found, []);
}
