import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT, useHome } from '../store/home.js';
import { type Lab, startLab } from './lab.js';
import { layoutFaults } from './layout.js';

/**
 * Every page as people see it, on a large screen and on a phone, light and dark: what can be checked of its looks is checked, and
 * the pictures are left in build-tests/dashboard to be looked at.
 */
/** Fourteen pages, each looked at by axe: on a busy machine that takes its time. */
const MOST_MS = 400_000;
const PICTURES = join(ROOT, 'build-tests', 'dashboard');
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SIZES = { large: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

useHome();
let lab: Lab;
let dashboard: Lab['dashboard'];
let world: Lab['world'];
let browser: Lab['browser'];

beforeAll(async () => {
  mkdirSync(PICTURES, { recursive: true });
  lab = await startLab();
  ({ dashboard, world, browser } = lab);
});
afterAll(() => lab?.close());

/** What the rules of accessibility find, each with where. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axeSource); // as a debugger does: the page's own policy allows no script of others
  return page.evaluate(async () => {
    interface Axe {
      run(
        what: Document,
      ): Promise<{ violations: { id: string; nodes: { target: unknown; failureSummary?: string }[] }[] }>;
    }
    const found = await (window as unknown as { axe: Axe }).axe.run(document);
    return found.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${JSON.stringify(target)} ${failureSummary ?? ''}`),
    );
  });
}

const jobNamed = (wanted: (record: { name: string; state: string; reason: string | null }) => boolean): string =>
  `#/jobs/${world.records.find(wanted)?.job}`;

/** Where each is, and what is done there before it is looked at. */
const PAGES: [name: string, hash: () => string, act?: (page: Page) => Promise<unknown>][] = [
  ['jobs', () => '#/'],
  ['queued', () => '#/?show=queued', openFirst],
  ['ended', () => '#/?show=ended'],
  ['failed', () => '#/?show=ended&find=OutOfMemory', openFirst],
  ['nothing', () => '#/?find=no-such-thing'],
  [
    'chosen',
    () => '#/?show=all&sort=-for',
    (page) =>
      page.getByRole('checkbox', { name: 'Choose all that are listed' }).evaluate((box: HTMLElement) => box.click()),
  ],
  [
    'edit',
    () => '#/?show=queued',
    (page) =>
      page
        .getByRole('button', { name: /^Edit j-/ })
        .first()
        .click(),
  ],
  [
    'cancel',
    () => '#/?show=running',
    (page) =>
      page
        .getByRole('button', { name: /^Cancel j-/ })
        .first()
        .click(),
  ],
  ['running-job', () => jobNamed(({ name }) => name === 'vit-b16-in21k')],
  ['searching-job', () => jobNamed(({ state }) => state === 'searching')],
  [
    'waiting-job',
    () => jobNamed(({ state, reason }) => state === 'queued' && reason?.startsWith('waits for 4') === true),
  ],
  ['exhausted-job', () => jobNamed(({ state }) => state === 'exhausted')],
  ['missing-job', () => '#/jobs/j-nosuchjob'],
];

async function openFirst(page: Page): Promise<void> {
  await page
    .getByRole('button', { name: /^More of / })
    .first()
    .click();
}

interface View {
  size: string;
  colorScheme: 'light' | 'dark';
}

/** Where things stand does not depend on the scheme. */
async function look(
  page: Page,
  what: string,
  { size, colorScheme }: View,
  faults: Record<string, string[]>,
): Promise<void> {
  const name = `${what}-${size}-${colorScheme}`;
  const path = join(PICTURES, `${name}.png`);
  // On a phone the devices fill the screen: of a list its own beginning is looked at, of a job's page all
  const list = page.getByRole('heading', { name: 'Jobs' });
  if (await list.isVisible()) await list.evaluate((heading) => innerWidth < 500 && heading.scrollIntoView());
  const fullPage = !(await list.isVisible());
  await page.screenshot({ path, animations: 'disabled', fullPage });
  expect(statSync(path).size).toBeGreaterThan(5000);
  const found = [...(colorScheme === 'light' ? await layoutFaults(page) : []), ...(await violations(page))];
  if (found.length > 0) faults[name] = found;
}

describe.each(Object.entries(SIZES))('on a %s screen', (size, viewport) => {
  it.each(['light', 'dark'] as const)(
    'each page in %s is whole, legible and open to all',
    async (colorScheme) => {
      const page = await browser.page(`${dashboard.url}`);
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      const faults: Record<string, string[]> = {};
      await page
        .getByLabel('Token')
        .or(page.getByRole('heading', { name: 'Devices' }))
        .waitFor();
      if (!(await page.getByLabel('Token').isVisible())) await page.getByRole('button', { name: 'Log out' }).click();
      await page.getByLabel('Token').waitFor();
      await look(page, 'login', { size, colorScheme }, faults);
      await page.goto(`${dashboard.url}#token=${dashboard.token}`);
      await page.reload(); // the form has no eye on the address
      await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
      for (const [name, hash, act] of PAGES) {
        await page.keyboard.press('Escape'); // a dialog of the page before
        await page.goto(`${dashboard.url}${hash()}`);
        await page.locator(':is(tr[data-job], .void, .facts dd, .verdict):visible').first().waitFor();
        if (hash().startsWith('#/jobs/') && !hash().includes('nosuch'))
          await page.locator('.facts dd:visible').first().waitFor();
        await page.getByText('live', { exact: true }).waitFor();
        await act?.(page);
        await look(page, name, { size, colorScheme }, faults);
      }
      expect(faults).toEqual({});
      await page.close();
    },
    MOST_MS,
  );
});

it('the picture for the README is made by a script, and is small', () => {
  const path = join(PICTURES, 'readme.png');
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'dashboard-picture.mjs'), path], { stdio: 'pipe' });
  const picture = readFileSync(path);
  expect(picture.subarray(1, 4).toString()).toBe('PNG');
  expect(picture.length).toBeLessThan(300_000);
  expect(picture.length).toBeGreaterThan(50_000);
});

it('the checks themselves find what they look for', async () => {
  const page = await browser.page(`${dashboard.url}#token=${dashboard.token}`);
  await page.getByRole('heading', { name: 'Devices' }).waitFor();
  await page.setViewportSize(SIZES.phone);
  await page.emulateMedia({ colorScheme: 'light' });
  expect(await layoutFaults(page)).toEqual([]);
  await page.evaluate(() => {
    const add = (style: Partial<CSSStyleDeclaration>, text: string): void => {
      const element = document.createElement('p');
      element.textContent = text;
      Object.assign(element.style, style);
      document.querySelector('main')?.prepend(element);
    };
    add({ width: '600px' }, 'wide');
    add({ width: '40px', overflow: 'hidden', whiteSpace: 'nowrap' }, 'much too long for it');
    add({ width: '90px', wordBreak: 'break-all' }, 'some wonderful');
    for (const text of ['under', 'over it']) add({ position: 'absolute', top: '300px', left: '9px' }, text);
    add({ color: '#aaa' }, 'faint');
  });
  const found = (await layoutFaults(page)).join('\n');
  for (const what of ['the page is', 'past the edge', 'cut off: much', 'broken: wonderful', 'on top of each other'])
    expect(found).toContain(what);
  expect((await violations(page)).join('\n')).toContain('color-contrast');
  await page.close();
});
