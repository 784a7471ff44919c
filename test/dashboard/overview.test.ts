import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Runtime } from '../../src/runtime/types.js';
import { furnish, labRuntime } from '../fixtures/dashboard/lab.mjs';
import { useHome } from '../store/home.js';
import { Browser } from './browser.js';
import { Dashboard } from './server.js';

/** The page with eight GPUs and two hundred jobs. What devices there are is made up; Redis, the server and the browser are real. */
useHome();
let dashboard: Dashboard;
let world: Awaited<ReturnType<typeof furnish>>;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  dashboard = await Dashboard.start({ runtime: labRuntime() as unknown as Runtime });
  world = await furnish(dashboard.store);
  browser = await Browser.start();
  page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
});
afterAll(async () => {
  await browser?.close();
  await world?.leave();
  await dashboard?.close();
});

describe('the devices', () => {
  const cells = (device: string) =>
    page
      .getByRole('row', { name: new RegExp(`^${device} `) })
      .getByRole('cell')
      .allInnerTexts();

  it('are a line each, with what a new job could have of them', async () => {
    expect((await cells('cuda:0')).slice(1, 5)).toEqual(['129 GiB', '141 GiB', 'none', '99 %']);
    // A stranger holds a part, no job: the rest is free
    expect((await cells('cuda:3')).slice(1, 5)).toEqual(['37.5 GiB', '—', '104 GiB', '12 %']);
    // Two jobs share it: what they leave is free, less the half GiB that nobody accounts for
    expect((await cells('cuda:4')).slice(1, 5)).toEqual(['102 GiB', '112 GiB', '28.5 GiB', '97 %']);
    const heights = await page
      .locator('tr.device')
      .evaluateAll((rows) => rows.map((row) => row.getBoundingClientRect().height));
    expect(heights).toHaveLength(8);
    expect(Math.max(...heights)).toBeLessThanOrEqual(32);
  });

  it('name who holds them, jobs by name, and tell all of many on demand', async () => {
    expect((await cells('cuda:0')).at(-1)).toBe('llama3-8b-sft alice, all of it');
    expect((await cells('cuda:3')).at(-1)).toBe('python3.11 (pid 21417) not ours, 37 GiB');
    const row = page.getByRole('row', { name: /^cuda:5 / });
    expect(await row.getByRole('listitem').count()).toBe(2);
    await row.getByRole('button', { name: 'Show 1 more that hold cuda:5' }).click();
    expect(await row.getByRole('listitem').allInnerTexts()).toContain('resnet50-lr-1.6 bob, 40 GiB');
    await row.getByRole('button', { name: /Show fewer/ }).click();
    await row.getByRole('link', { name: 'resnet50-lr-0.4' }).click();
    await page.getByRole('heading', { level: 1, name: 'resnet50-lr-0.4' }).waitFor();
    await page.goto(`${dashboard.url}#/`);
    await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
  });
});
