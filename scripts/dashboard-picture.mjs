#!/usr/bin/env node
/**
 * Draws the dashboard of a lab of eight GPUs and two hundred jobs as a PNG: `node scripts/dashboard-picture.mjs [FILE]`. The jobs are those of
 * test/fixtures/dashboard; the server, Redis and the browser are real. Default: docs/pictures/dashboard.png.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const file = resolve(process.argv[2] ?? join(ROOT, 'docs', 'pictures', 'dashboard.png'));
const MOST_BYTES = 300_000;

const home = mkdtempSync(join(tmpdir(), 'oomtune-picture-'));
process.env.OOMTUNE_HOME = home;
delete process.env.OOMTUNE_REDIS_URL;
const { openStore, stopRedis } = await import('../dist/store/index.js');
const { startHttp } = await import('../dist/daemon/http/index.js');
const { dashboardToken } = await import('../dist/daemon/http/token.js');
const { createLog } = await import('../dist/common/log.js');
const { packageVersion } = await import('../dist/common/home.js');
const { furnish, labRuntime } = await import('../test/fixtures/dashboard/lab.mjs');

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

const store = await openStore({ url: null, onOutage: () => {} });
const world = await furnish(store);
const http = await startHttp({
  store,
  runtime: labRuntime(),
  log: createLog('picture', 'silent'),
  version: packageVersion(),
  port: 0,
  steps: world.steps,
});
let browser = null;
try {
  const executablePath = PLACES.find((path) => existsSync(path));
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 860 }, colorScheme: 'light' });
  await page.goto(`${http.url}#token=${dashboardToken()}`);
  await page.getByRole('row', { name: /^cuda:7/ }).waitFor();
  await page.locator('tr[data-job] .progress').first().waitFor();
  await page.getByText('live', { exact: true }).waitFor();
  await page.locator('#where').evaluate((element) => element.replaceChildren('gpu-box'));
  mkdirSync(dirname(file), { recursive: true });
  await page.screenshot({ path: file, animations: 'disabled' });
} finally {
  await browser?.close();
  await world.leave();
  await http.close();
  await store.close();
  await stopRedis();
  rmSync(home, { recursive: true, force: true });
}
const { size } = statSync(file);
if (size > MOST_BYTES) {
  process.stderr.write(`${file} has ${size} bytes: more than ${MOST_BYTES}\n`);
  process.exitCode = 1;
} else process.stdout.write(`${file}: ${size} bytes\n`);
