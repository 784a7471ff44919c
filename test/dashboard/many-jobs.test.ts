import { afterAll, beforeAll, expect, it } from 'vitest';
import { newJobId } from '../../src/store/index.js';
import { until, useHome } from '../store/home.js';
import { job } from '../store/samples.js';
import { Browser } from './browser.js';
import { Dashboard } from './server.js';

useHome();
let dashboard: Dashboard;
let browser: Browser;

beforeAll(async () => {
  dashboard = await Dashboard.start();
  browser = await Browser.start();
});
afterAll(async () => {
  await browser?.close();
  await dashboard?.close();
});

it('keeps a page of a thousand jobs small, and touches only the rows that change', async () => {
  const { jobs } = dashboard.store;
  const ids = Array.from({ length: 1000 }, () => newJobId());
  const at = Date.now() - 3600_000;
  for (const [n, id] of ids.entries()) {
    await jobs.create(job({ job: id, name: `job ${n}`, submitted_at: new Date(at + n * 1000).toISOString() }));
  }
  const page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  const rows = page.locator('tr[data-job]');
  await page.getByText('1 to 50 of 1000').waitFor();
  expect(await rows.count()).toBe(50);
  expect(await page.evaluate(() => document.querySelectorAll('*').length)).toBeLessThan(2500);
  expect(await rows.first().getAttribute('data-job')).toBe(ids[0]);

  // Whatever is written into the table from now on
  await page.evaluate(() => {
    const seen = new Set<string>();
    (window as unknown as { seen: Set<string> }).seen = seen;
    new MutationObserver((changes) => {
      for (const { target } of changes) {
        const row = (target instanceof Element ? target : target.parentElement)?.closest('tr[data-job]');
        if (row?.querySelector('.state')?.textContent !== 'queued') seen.add(row?.getAttribute('data-job') ?? 'table');
      }
    }).observe(document.querySelector('table.jobs tbody') as Element, {
      subtree: true,
      childList: true,
      characterData: true,
    });
  });
  const id = ids[20] as string;
  await jobs.patch(id, { state: 'searching', reason: 'trying micro-batch 8' });
  await until(async () => (await rows.first().getAttribute('data-job')) === id);
  await page.locator(`tr[data-job="${id}"]`).getByText('trying micro-batch 8').waitFor();
  const seen = await page.evaluate(() => [...(window as unknown as { seen: Set<string> }).seen]);
  expect(seen.filter((one) => one !== id && one !== 'table')).toEqual([]);

  for (const one of ids.slice(100, 400)) await jobs.cancel(one);
  await page.getByText('1 to 50 of 700').waitFor();
  await page.getByRole('button', { name: 'Ended 300' }).click();
  await page.getByText('1 to 50 of 300').waitFor();
  await page.getByRole('button', { name: 'On', exact: true }).click();
  await page.getByText('51 to 100 of 300').waitFor();
  await page.getByRole('searchbox', { name: 'Find jobs' }).fill(ids[399] as string);
  await until(async () => (await rows.count()) === 1);
  expect(await rows.innerText()).toContain('job 399');
  expect(browser.complaints).toEqual([]);
});
