import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until, useHome } from '../store/home.js';
import { type Lab, startLab } from './lab.js';

useHome();
let lab: Lab;
let dashboard: Lab['dashboard'];
let world: Lab['world'];
let browser: Lab['browser'];
let page: Page;

beforeAll(async () => {
  lab = await startLab();
  ({ dashboard, world, browser } = lab);
  page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
});
afterAll(() => lab?.close());

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
    await row.getByRole('button', { name: 'and 1 more that hold cuda:5' }).click();
    expect(await row.getByRole('listitem').allInnerTexts()).toContain('resnet50-lr-1.6 bob, 40 GiB');
    await row.getByRole('button', { name: /^fewer that/ }).click();
    await row.getByRole('link', { name: 'resnet50-lr-0.4' }).click();
    await page.getByRole('heading', { level: 1, name: 'resnet50-lr-0.4' }).waitFor();
    await page.goto(`${dashboard.url}#/`);
    await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
  });
});

describe('the jobs', () => {
  const base = (): string => `${dashboard.url}#/`;
  const listed = () => page.locator('tr[data-job] td.name').allInnerTexts();
  const rowOf = (name: string) => page.getByRole('row', { name: new RegExp(` ${name} `) });
  const fresh = async (hash: string): Promise<void> => {
    await page.goto(`${dashboard.url}${hash}`);
    await page.reload();
    await page.locator('tr[data-job]').first().waitFor();
  };

  it('are a line each: progress, memory and speed while they run, the evidence when they failed', async () => {
    await fresh('#/');
    const running = await rowOf('llama3-8b-sft').innerText();
    for (const text of ['running', 'alice', '2 h 45 min left', '128 of 137 GiB', '61.3', 'cuda:0, 1', '12 × 4'])
      expect(running).toContain(text);
    // None of its name has ended well yet: only how far it is
    expect(await rowOf('nanogpt-owt').innerText()).toContain('step 9,312');
    expect(await rowOf('t5-xl-summarize').innerText()).toContain('trying micro-batch 24');
    const heights = await page
      .locator('tr[data-job]')
      .evaluateAll((rows) => rows.map((row) => row.getBoundingClientRect().height));
    expect(Math.max(...heights)).toBeLessThanOrEqual(32);
    await fresh('#/?show=ended&find=FileNotFound');
    expect(await page.locator('tr[data-job] .reason').first().innerText()).toBe(
      "error in the job: FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet/train.txt'",
    );
  });

  it('say why they wait in one line, with their place in the queue, and all of it on demand', async () => {
    await fresh('#/?show=queued');
    const [first] = await listed();
    const row = page.locator('tr[data-job]').first();
    expect(await row.locator('.reason').innerText()).toBe(
      '1st in the queue: 4 GPUs: cuda:3 is held by a process that is not ours, 37 GiB',
    );
    expect(await row.locator('.priority').innerText()).toBe('50');
    await row.getByRole('button', { name: new RegExp(`^More of ${first}`) }).click();
    const detail = await row.locator('.detail').innerText();
    expect(detail).toContain('37 GiB are used by /usr/bin/python3.11 (pid 21417)');
    expect(detail).toContain(await row.getAttribute('data-job'));
    await row.getByRole('button', { name: new RegExp(`^More of ${first}`) }).click();
    expect(await row.locator('.detail').isVisible()).toBe(false);
  });

  it('are sorted and filtered as the address says, also after a reload and on the way back from a job', async () => {
    await fresh('#/');
    await page.getByRole('button', { name: /^All/ }).click();
    await page.getByRole('combobox', { name: 'Whose jobs' }).selectOption('bob');
    await page.getByRole('searchbox', { name: 'Find jobs' }).fill('resnet50');
    await page.getByRole('button', { name: 'Samples/s' }).click();
    const head = page.getByRole('columnheader', { name: 'Samples/s' });
    expect(await head.getAttribute('aria-sort')).toBe('descending');
    const wanted = await listed();
    expect(wanted.slice(0, 3)).toEqual(['resnet50-lr-0.4', 'resnet50-lr-0.8', 'resnet50-lr-1.6']);
    expect(page.url()).toBe(`${base()}?show=all&find=resnet50&owner=bob&sort=-speed`);
    await page.reload();
    await until(async () => (await listed()).join() === wanted.join());
    expect(await page.getByRole('searchbox', { name: 'Find jobs' }).inputValue()).toBe('resnet50');
    await page.getByRole('link', { name: 'resnet50-lr-0.8' }).last().click();
    await page.getByRole('link', { name: 'All jobs' }).click();
    await until(async () => (await listed()).join() === wanted.join());
    await page.getByRole('button', { name: 'Samples/s' }).click();
    expect(await head.getAttribute('aria-sort')).toBe('ascending');
    expect((await listed())[0]).toBe('resnet50-lr-1.6');
    await page.getByRole('button', { name: 'Samples/s' }).click();
    expect(await head.getAttribute('aria-sort')).toBeNull();
  });

  it('are steered many at once, those that can be', async () => {
    const { jobs } = dashboard.store;
    await fresh('#/?show=queued&find=clip-b32');
    const ids = await page
      .locator('tr[data-job]')
      .evaluateAll((rows) => rows.map((row) => (row as HTMLElement).dataset.job ?? ''));
    const states = async () => new Set((await Promise.all(ids.map((id) => jobs.get(id)))).map((job) => job?.state));
    const bulk = page.getByRole('group', { name: 'The chosen jobs' });
    await page.getByRole('checkbox', { name: 'Choose all that are listed' }).check();
    await bulk.getByText(`${ids.length} jobs chosen`).waitFor();
    await bulk.getByRole('button', { name: /^Edit/ }).click();
    const dialog = page.getByRole('dialog', { name: `Edit ${ids.length} jobs` });
    await dialog.getByLabel(/^Priority/).fill('7');
    await dialog.getByLabel(/^Time limit/).fill('2h30m');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await until(async () => {
      const all = await Promise.all(ids.map((id) => jobs.get(id)));
      return all.every((job) => job?.options.priority === 7 && job.options.timeSeconds === 9000);
    });
    await bulk.getByRole('button', { name: /^Hold/ }).click();
    await until(async () => [...(await states())].join() === 'held');
    await bulk.getByRole('button', { name: 'Release', exact: true }).click();
    await until(async () => [...(await states())].join() === 'queued');
    // What is filtered away is no longer chosen
    await page.getByRole('searchbox', { name: 'Find jobs' }).fill(ids[0] as string);
    await bulk.getByText('1 job chosen').waitFor();
    await page.getByRole('searchbox', { name: 'Find jobs' }).fill('clip-b32');
    await bulk.getByText('1 job chosen').waitFor();
    await page.getByRole('checkbox', { name: 'Choose all that are listed' }).check();
    await bulk.getByRole('button', { name: 'Cancel', exact: true }).click();
    await page.getByRole('button', { name: `Cancel ${ids.length} jobs` }).click();
    await until(async () => [...(await states())].join() === 'cancelled');
    await page.getByText('No such jobs.').waitFor();
    await fresh('#/?show=ended&find=clip-b32');
    await page.getByRole('checkbox', { name: `Choose`, exact: false }).nth(1).check();
    expect(await bulk.getByRole('button').allInnerTexts()).toEqual(['Retry', 'Choose none']);
  });

  it('refuse a change that cannot be, with the words of the command line', async () => {
    const [row] = world.records.filter(({ state }) => state === 'queued');
    for (const body of [{}, { time: 'soon' }, { priority: 1.5 }, { priority: 1, name: 'other' }]) {
      const { status, json } = await dashboard.ask(`/api/jobs/${row?.job}/edit`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      expect([status, json.error?.code]).toEqual([409, 'OOMTUNE_USAGE']);
    }
    const [running] = world.records;
    const { json } = await dashboard.ask(`/api/jobs/${running?.job}/edit`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ priority: 1 }),
    });
    expect(json.error?.message).toBe(`${running?.job} cannot be edited: it is running.`);
  });
});
