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

/** More than fit twice on the screen are never needed. */
const MOST_ROWS = 70;

it('keeps a page of a thousand jobs small, and touches only the rows that change', async () => {
  const { jobs } = dashboard.store;
  const ids = Array.from({ length: 1000 }, () => newJobId());
  const at = Date.now() - 3600_000;
  for (const [n, id] of ids.entries()) {
    await jobs.create(job({ job: id, name: `job ${n}`, submitted_at: new Date(at + n * 1000).toISOString() }));
  }
  const page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  const rows = page.locator('tr[data-job]');
  const table = page.getByRole('table', { name: 'Jobs' });
  await page.getByRole('button', { name: 'Open 1000' }).waitFor();
  await until(async () => (await table.getAttribute('aria-rowcount')) === '1001');
  expect(await rows.count()).toBeLessThan(MOST_ROWS);
  expect(await page.evaluate(() => document.querySelectorAll('*').length)).toBeLessThan(2500);
  expect(await rows.first().getAttribute('data-job')).toBe(ids[0]);
  // The page is as long as all of them
  const long = await page.evaluate(() => document.documentElement.scrollHeight);
  expect(long).toBeGreaterThan(1000 * 30);

  // Scrolled through from end to end there are never more, and each is there when it is looked at
  const seen = new Set<string>();
  let most = 0;
  for (let y = 0; y < long; y += 500) {
    const shown = await page.evaluate(async (top) => {
      scrollTo(0, top);
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const all = [...document.querySelectorAll<HTMLElement>('tr[data-job]')];
      const inView = all.filter((row) => {
        const { top: above, bottom: below } = row.getBoundingClientRect();
        return below > 0 && above < innerHeight;
      });
      return { count: all.length, ids: inView.map((row) => row.dataset.job ?? '') };
    }, y);
    most = Math.max(most, shown.count);
    for (const id of shown.ids) seen.add(id);
  }
  expect(most).toBeLessThan(MOST_ROWS);
  expect(ids.filter((id) => !seen.has(id))).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollHeight)).toBe(long);
  expect(await rows.last().getAttribute('aria-rowindex')).toBe('1001');
  await page.evaluate(() => scrollTo(0, 0));
  await until(async () => (await rows.first().getAttribute('data-job')) === ids[0]);

  // How long frames take while it is scrolled, four rows at a time: told, and held to nothing, as the machine may be busy
  const frames = await page.evaluate(async () => {
    const passed: number[] = [];
    let last = await new Promise<number>(requestAnimationFrame);
    for (let y = 0; y < document.documentElement.scrollHeight - innerHeight; y += 120) {
      scrollTo(0, y);
      const now = await new Promise<number>(requestAnimationFrame);
      passed.push(now - last);
      last = now;
    }
    return passed.sort((a, b) => a - b);
  });
  const slow = frames.filter((ms) => ms > 50).length;
  expect(frames.length).toBeGreaterThan(200);
  console.log(
    `scrolled past 1000 jobs: ${frames.length} frames, median ${frames[frames.length >> 1]?.toFixed(1)} ms, ${slow} above 50 ms`,
  );
  await page.evaluate(() => scrollTo(0, 0));
  await until(async () => (await rows.first().getAttribute('data-job')) === ids[0]);

  // Whatever is written into the table from now on
  await page.evaluate(() => {
    const seen = new Set<string>();
    (window as unknown as { seen: Set<string> }).seen = seen;
    new MutationObserver((changes) => {
      for (const { target, attributeName } of changes) {
        if (attributeName === 'aria-rowindex') continue;
        const row = (target instanceof Element ? target : target.parentElement)?.closest('tr[data-job]');
        if (row?.querySelector('.state')?.textContent !== 'queued') seen.add(row?.getAttribute('data-job') ?? 'table');
      }
    }).observe(document.querySelector('table.jobs') as Element, {
      subtree: true,
      childList: true,
      characterData: true,
      attributes: true,
    });
  });
  const id = ids[20] as string;
  await jobs.patch(id, { state: 'searching', reason: 'trying micro-batch 8' });
  await until(async () => (await rows.first().getAttribute('data-job')) === id);
  await page.locator(`tr[data-job="${id}"]`).getByText('trying micro-batch 8').waitFor();
  const changed = await page.evaluate(() => [...(window as unknown as { seen: Set<string> }).seen]);
  expect(changed.filter((one) => one !== id && one !== 'table')).toEqual([]);

  for (const one of ids.slice(100, 400)) await jobs.cancel(one);
  await page.getByRole('button', { name: 'Open 700' }).waitFor();
  await page.getByRole('button', { name: 'Ended 300' }).click();
  await until(async () => (await table.getAttribute('aria-rowcount')) === '301');
  await page.getByRole('searchbox', { name: 'Find jobs' }).fill(ids[399] as string);
  await until(async () => (await rows.count()) === 1);
  expect(await rows.innerText()).toContain('job 399');
  expect(browser.complaints).toEqual([]);
}, 400_000);
