import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../../src/common/errors.js';
import { ROOT } from '../cli/oomtune.js';
import { Browser } from '../dashboard/browser.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-site-'));
/** A path that is nobody's root, with what has to be escaped in an address. */
const site = join(folder, 'some where', 'below');
let places: string[];

const read = (place: string): string => readFileSync(join(site, place), 'utf8');
const address = (place: string): string => pathToFileURL(join(site, place)).href;

beforeAll(() => {
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'docs.mjs'), join(folder, 'made')], { stdio: 'pipe' });
  cpSync(join(folder, 'made'), site, { recursive: true });
  places = readdirSync(site, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.html'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the site', () => {
  it('has every page of the documentation', () => {
    const pages = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.md'))
      .map((file) => file.replace(/\.md$/, '.html'));
    expect(places.sort()).toEqual([...pages, 'readme.html', 'contributing.html', 'changelog.html'].sort());
  });

  it('has links that lead somewhere, anchors included, and lists every page on each', () => {
    const ids = new Map(
      places.map((place) => [place, new Set([...read(place).matchAll(/ id="([^"]+)"/g)].map((id) => id[1]))]),
    );
    const broken: string[] = [];
    let checked = 0;
    for (const place of places) {
      const linked = new Set<string>();
      for (const [, href = ''] of read(place).matchAll(/<a [^>]*?href="([^"]+)"/g)) {
        if (/^https:/.test(href)) continue;
        const [path = '', anchor] = decodeURI(href).split('#');
        const target = path === '' ? place : normalize(join(dirname(place), path));
        linked.add(target);
        checked += 1;
        const known = ids.get(target);
        if (
          anchor !== undefined
            ? !known?.has(anchor)
            : !known && !readdirSync(join(site, dirname(target))).includes(target.split('/').at(-1) as string)
        ) {
          broken.push(`${place} → ${href}`);
        }
      }
      expect(places.filter((other) => !linked.has(other))).toEqual([]);
    }
    expect(checked).toBeGreaterThan(1000);
    expect(broken).toEqual([]);
  });

  it('loads nothing from elsewhere, and nothing by a path that begins at a root', () => {
    for (const place of places) {
      const loaded = [...read(place).matchAll(/<(?:script|link|img|source)\b[^>]*?(?:src|href|srcset)="([^"]+)"/g)];
      expect(loaded.length).toBeGreaterThan(3);
      expect(loaded.map((one) => one[1]).filter((href) => /^(\/|[a-z]+:)/.test(href as string))).toEqual([]);
    }
    expect(read('assets/site.css')).not.toMatch(/url\(|@import/);
  });

  it('has an anchor for every error code', () => {
    const ids = [...read('reference/errors.html').matchAll(/ id="(oomtune_[a-z_]+)"/g)].map((id) => id[1]);
    expect(ids.sort()).toEqual(
      Object.keys(ERROR_CODES)
        .map((code) => code.toLowerCase())
        .sort(),
    );
  });
});

describe('the site in a browser, from a disk', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await Browser.start();
  });
  afterAll(() => browser?.close());

  it.each([
    ['OOMTUNE_BAD_SIZE', /errors\.html#oomtune_bad_size$/],
    ['24 GB card', /budgets\.html#budgets-what-would/],
    ['slurm array', /clusters\.html/],
    ['efective batch', /effective/], // mistyped
    ['--headroom', /reference\//],
  ])('finds %s', async (words, place) => {
    const page = await browser.page(address('guides/timm.html'));
    await page.keyboard.press('/');
    await page.keyboard.type(words);
    const links = page.locator('#found li a');
    await links.first().waitFor();
    const found = await links.evaluateAll((all) => all.slice(0, 4).map((one) => (one as HTMLAnchorElement).href));
    expect(found).toEqual(expect.arrayContaining([expect.stringMatching(place)]));
    await page.keyboard.press('Enter');
    await page.waitForURL(found[0] as string);
    expect(await page.locator('main h1').count()).toBe(1);
    await page.close();
  });

  it('says that nothing was found, and shows no text of the reader as markup', async () => {
    const page = await browser.page(address('index.html'));
    await page.fill('#search', '<qqqqzzzz>');
    await page.locator('#found p').first().waitFor();
    expect(await page.locator('#found').textContent()).toContain('“<qqqqzzzz>”');
    expect(await page.locator('#found qqqqzzzz').count()).toBe(0);
    await page.close();
  });

  it.each([
    [1280, 'light'],
    [390, 'dark'],
  ] as const)('has nothing off-screen and nothing that axe finds: %i pixels, %s', async (width, colorScheme) => {
    const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
    for (const place of ['index.html', 'readme.html', 'reference/errors.html', 'reference/cli.html', 'compare.html']) {
      const page = await browser.page(address(place));
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      expect([place, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([place, width]);
      await page.addScriptTag({ path: axe });
      const found = await page.evaluate(async () => {
        const { axe } = globalThis as unknown as {
          axe: { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
        };
        return (await axe.run({ preload: false })).violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
      });
      expect([place, found]).toEqual([place, []]);
      await page.close();
    }
  });

  it('asked for nothing but its own files, and complained of nothing', () => {
    expect(browser.requests.length).toBeGreaterThan(10);
    expect(browser.requests.filter((url) => !url.startsWith('file:'))).toEqual([]);
    expect(browser.complaints).toEqual([]);
  });
});
