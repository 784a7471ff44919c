import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { daemonStatus, dashboardAddress } from '../../src/daemon/index.js';
import { Host } from '../daemon/host.js';
import { ROOT, until } from '../store/home.js';
import { job } from '../store/samples.js';
import { Browser, faintTexts } from './browser.js';

const host = new Host();
let browser: Browser;
let address: string;

beforeAll(async () => {
  await host.start({ cpuLanes: 1, httpPort: null }, { OMP_NUM_THREADS: '1' });
  await until(() => host.said.includes('the dashboard is served'));
  await until(async () => (await daemonStatus(await host.store())).dashboard !== null);
  ({ address } = dashboardAddress());
  browser = await Browser.start();
});
afterAll(async () => {
  await browser?.close();
  await host.close();
});

const base = (): string => address.split('#')[0] as string;
const row = (page: Page, job: string) => page.locator(`tr[data-job="${job}"]`);
const BUDGET = 34 * 1024 ** 2;

describe('the page', () => {
  it('refuses a wrong token, and takes the right one', async () => {
    const page = await browser.page(`${base()}#token=${'wrong-token-'.repeat(4)}`);
    await page.getByRole('alert').filter({ hasText: 'The token is wrong' }).waitFor();
    expect(await page.getByRole('table').count()).toBe(0);
    expect(page.url()).not.toContain('wrong-token');
    const field = page.getByLabel('Token');
    await field.fill('another-wrong-one');
    await field.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'The token is wrong' }).waitFor();
    expect(await page.evaluate(() => fetch('/api/machine').then(({ status }) => status))).toBe(401);
    await field.fill(address.split('#token=')[1] as string);
    await field.press('Enter');
    await page.getByRole('heading', { name: 'Devices' }).waitFor();
    await page.getByText('live', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('Token').waitFor();
    expect(await page.evaluate(() => fetch('/api/machine').then(({ status }) => status))).toBe(401);
    await page.close();
    browser.complaints.length = 0; // Chromium logs each refusal
  });

  it('takes the token out of the address, and keeps the session in a new tab', async () => {
    const page = await browser.page(address);
    await page.getByRole('heading', { name: 'Devices' }).waitFor();
    expect(page.url()).toBe(`${base()}#/`);
    expect(await page.evaluate(() => document.cookie)).toBe('');
    const second = await browser.page(base());
    await second.getByRole('heading', { name: 'Jobs' }).waitFor();
    await second.close();
    await page.close();
  });
});

describe('a job', () => {
  it('is followed from its submission to its recommendation', async () => {
    const page = await browser.page(address);
    await page.getByRole('heading', { name: 'Jobs' }).waitFor();
    const id = await host.submit(
      ['/usr/bin/python3', `${ROOT}test/fixtures/worker/tiny.py`],
      { name: 'followed', budget: '34MiB', tune: true, preset: 'auto' },
      { ...process.env, OMP_NUM_THREADS: '1' },
    );
    await row(page, id).getByRole('link', { name: 'followed' }).click();
    await page.getByRole('heading', { level: 1, name: 'followed' }).waitFor();
    const steps = page.locator('.ladder tbody tr[data-outcome]');
    // Seen while it grows: the first steps are there before the job has its answer
    const grown = new Set<number>();
    await until(async () => {
      grown.add(await steps.count());
      return (await page.locator('h1 + .state').textContent()) === 'succeeded';
    }, 100);
    expect(grown.size).toBeGreaterThan(2);

    const job = await host.job(id);
    expect(job.config).not.toBeNull();
    const recommended = await (await host.store()).recommendations.get(job.key ?? '');
    await until(async () => (await steps.count()) === job.journal.length);
    const ladder = await steps.evaluateAll((rows) =>
      rows.map((one) => [
        Number.parseInt(one.children[2]?.textContent ?? '', 10),
        (one as HTMLElement).dataset.outcome,
      ]),
    );
    expect(ladder).toEqual(job.journal.map(({ micro_batch: microBatch, outcome }) => [microBatch, outcome]));
    expect(await page.locator('tr[data-outcome="device_oom"]').first().textContent()).toContain(
      "can't allocate memory",
    );
    const fact = async (name: string) => page.locator(`.facts div:has(dt:text-is("${name}")) dd`).innerText();
    expect(await fact('Micro-batch')).toBe(`${job.config?.micro_batch}\n${largestWords(recommended)}`);
    expect(await fact('Effective batch')).toContain(String(job.config?.effective_batch));

    const chart = page.getByRole('figure', { name: 'Peak memory by micro-batch' });
    const sizes = (outcome: string): number =>
      new Set(job.journal.filter((one) => one.outcome === outcome).map((one) => one.micro_batch)).size;
    expect(await chart.evaluate((figure) => ({ ...(figure as HTMLElement).dataset }))).toMatchObject({
      fits: String(sizes('fit')),
      failed: String(sizes('device_oom')),
      lines: '1',
      budget: String(BUDGET),
    });
    expect(await inkOf(page, 'Peak memory by micro-batch')).toBeGreaterThan(300);
    expect(await chart.innerText()).toContain('budget 34 MiB');
    const memory = page.getByRole('figure', { name: 'Memory over time' });
    expect(Number(await memory.evaluate((figure) => (figure as HTMLElement).dataset.launches))).toBeGreaterThan(1);
    expect(await inkOf(page, 'Memory over time')).toBeGreaterThan(300);
    await page.getByRole('log').getByText('trained:').waitFor();

    const filling = page.getByRole('region', { name: 'What fills the memory' });
    const parts = (await filling.getByRole('listitem').allInnerTexts()).map((text) => text.replace(/\s+/g, ' ').trim());
    for (const name of ['parameters', 'gradients', 'optimizer state'])
      expect(parts).toContain(`${name} 8.06 MiB 23.7 %`);
    expect(parts.find((text) => text.startsWith('activations'))).toMatch(/ %, .* a sample$/);
    expect(parts.at(-1)).toMatch(/^free /);
    const shares = parts.map((text) => Number(/([\d.]+) %/.exec(text)?.[1]));
    expect(shares.reduce((a, b) => a + b)).toBeCloseTo(100, 0);
    expect(await filling.getByRole('img').getAttribute('aria-label')).toContain('of 34 MiB');
    expect(await filling.locator('header p').innerText()).toContain('the peak in forward and backward');
    const widths = await filling
      .locator('.slice')
      .evaluateAll((slices) => slices.map((slice) => slice.getBoundingClientRect().width));
    expect(widths).toHaveLength(parts.length);
    const bar = widths.reduce((a, b) => a + b);
    for (const [at, width] of widths.entries()) {
      expect(Math.abs((100 * width) / bar - (shares[at] ?? 0)), parts[at]).toBeLessThan(1);
    }

    await page.getByRole('link', { name: 'All jobs' }).click();
    await page.getByRole('button', { name: /^Ended/ }).click();
    expect(await row(page, id).innerText()).toContain('succeeded');
    await page.close();
  });

  it('has its memory over time from an earlier daemon, with a break where nobody looked', async () => {
    const store = await host.store();
    const dir = '/tmp/launch';
    const launches = [1, 2].map((launch) => ({ launch, dir, purpose: 'run' as const, config: null }));
    const record = job({ name: 'earlier', host: 'elsewhere', launches });
    await store.jobs.create(record);
    await store.jobs.patch(record.job, { state: 'succeeded' });
    const at = (seconds: number, launch: number) => ({ at: 1e12 + seconds * 1000, launch, bytes: 3e6 });
    const samples = [...[0, 1, 2, 3].map((s) => at(s, 1)), ...[9, 10, 11, 40, 41].map((s) => at(s, 2))];
    await store.memory.put(record.job, { epoch: 1, budget_bytes: BUDGET, every: 4, samples });
    const page = await browser.page(`${base()}#/jobs/${record.job}`);
    const memory = page.getByRole('figure', { name: 'Memory over time' });
    await until(async () => (await memory.evaluate((figure) => (figure as HTMLElement).dataset.samples)) === '9');
    expect(await memory.evaluate((figure) => ({ ...(figure as HTMLElement).dataset }))).toMatchObject({
      launches: '2',
      gaps: '1',
    });
    expect(await memory.textContent()).toContain('the budget 34 MiB. No daemon looked for some of the time.');
    expect(await inkOf(page, 'Memory over time')).toBeGreaterThan(300);
    await page.close();
  });

  it('is cancelled, but only when that is confirmed; and is retried', async () => {
    const id = await host.shell('echo begun; exec sleep 600', { name: 'long' });
    const page = await browser.page(`${base()}#/`);
    await row(page, id).getByText('running').waitFor();
    const cancel = row(page, id).getByRole('button', { name: `Cancel ${id}` });
    await cancel.focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog', { name: `Cancel ${id}?` });
    await dialog.waitFor();
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Keep it');
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    expect((await host.job(id)).cancelAsked).toBeNull();
    await page.goto(`${base()}#/jobs/${id}`);
    await page.getByRole('log').getByText('begun').waitFor();
    await page.getByRole('button', { name: `Cancel ${id}` }).click();
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await host.state(id, 'cancelled');
    await page.locator('h1 + .state', { hasText: 'cancelled' }).waitFor();
    await until(() => host.processes().length === 0);
    await page.getByRole('status').filter({ hasText: 'cancelled' }).first().waitFor({ state: 'attached' });
    await page.getByRole('button', { name: `Retry ${id}` }).click();
    await host.state(id, 'running');
    await page.locator('h1 + .state', { hasText: 'running' }).waitFor();
    expect(host.starts(id)).toBe(2);

    const second = await host.shell('true', { name: 'second' });
    await page.goto(`${base()}#/`);
    await row(page, second).getByText(/waits/).waitFor();
    await row(page, second)
      .getByRole('button', { name: `Hold ${second}` })
      .click();
    await row(page, second).getByText('held', { exact: true }).waitFor();
    expect((await host.job(second)).state).toBe('held');
    await row(page, second)
      .getByRole('button', { name: `Release ${second}` })
      .click();
    await until(async () => (await host.job(second)).state === 'queued');
    for (const job of [id, second])
      await page.evaluate((one) => fetch(`/api/jobs/${one}/cancel`, { method: 'POST' }), job);
    await host.ended(second);
    await page.close();
  });

  it('cannot make the page run what it prints or is called', async () => {
    const markup = '<img src=x onerror=alert(1)><script>alert(2)</script>';
    const id = await host.submit(
      ['/bin/sh', '-c', `printf '%s\\n' "$0"; printf '\\033[31mred\\033[0m\\r50%%\\r100%%\\n'; exit 3`, markup],
      {
        name: markup,
      },
    );
    await host.ended(id);
    const page = await browser.page(`${base()}#/jobs/${id}`);
    page.on('dialog', () => browser.complaints.push('a dialog was opened'));
    await page.getByRole('log').getByText('100%').waitFor();
    expect(await page.getByRole('log').innerText()).toBe(`— launch 1 —\n${markup}\n100%\n`);
    expect(await page.locator('h1').innerText()).toBe(markup);
    expect(await page.locator('main img, main script').count()).toBe(0);
    expect(await page.locator('.verdict').innerText()).toContain('It failed');
    await page.close();
  });
});

/** That nothing larger fits is said only where the next size was tried. */
function largestWords(found: Recommendation | null): string {
  if (found === null) return '';
  const { max_micro_batch: most, known_bad_micro_batch: bad } = found;
  if (bad === null) return `${most} fits, none larger was tried`;
  return bad === most + 1 ? `at most ${most} fits` : `${most} fits, ${bad} does not`;
}

/** Pixels of a chart's canvas that are not blank. */
async function inkOf(page: Page, name: string): Promise<number> {
  return page.getByRole('figure', { name }).evaluate((figure) => {
    const canvas = figure.querySelector('canvas');
    const data = canvas?.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    let ink = 0;
    for (let at = 3; at < data.length; at += 4) if (data[at] !== 0) ink += 1;
    return ink;
  });
}

describe('the page, for everybody', () => {
  it('is read in light and dark, with text that stands out from its ground', async () => {
    const page = await browser.page(`${base()}#/`);
    await page.getByRole('button', { name: /^All/ }).click();
    await page.locator('tr[data-job]').first().waitFor();
    const [job] = await (await host.store()).jobs.list();
    const grounds = new Set<string>();
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const hash of ['#/', `#/jobs/${job?.job}`]) {
        await page.goto(`${base()}${hash}`);
        await page.locator('.state').first().waitFor();
        expect(await faintTexts(page)).toEqual([]);
      }
      grounds.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    }
    expect(grounds.size).toBe(2);
    // The measure itself: text as pale as its ground is told
    await page.evaluate(() => document.documentElement.style.setProperty('--ink-2', 'rgb(120 120 120 / 50%)'));
    expect((await faintTexts(page)).length).toBeGreaterThan(5);
    await page.close();
  });

  it('is used without a mouse', async () => {
    const page = await browser.page(`${base()}#/`);
    await page.getByRole('button', { name: /^All/ }).waitFor();
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Skip to the content');
    await page.keyboard.press('/');
    await page.keyboard.type('followed');
    const found = page.locator('tr[data-job]');
    await page.getByRole('button', { name: /^All/ }).press('Enter');
    await until(async () => (await found.count()) === 1);
    await found.getByRole('link').focus();
    expect(await found.getByRole('link').evaluate((link) => getComputedStyle(link).outlineStyle)).toBe('solid');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'followed' }).waitFor();
    const nameless = await page
      .locator('button:visible, input:visible, a:visible')
      .evaluateAll(
        (elements) =>
          elements.filter(
            (one) =>
              !(one.getAttribute('aria-label') || one.textContent?.trim() || (one as HTMLInputElement).labels?.length),
          ).length,
      );
    expect(nameless).toBe(0);
    await page.close();
  });

  it('asks nobody else for anything, and breaks no rule of its own', () => {
    expect(browser.requests.length).toBeGreaterThan(20);
    expect(browser.requests.filter((url) => !url.startsWith(base()))).toEqual([]);
    expect(browser.complaints).toEqual([]);
  });
});
