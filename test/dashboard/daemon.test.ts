import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { freePort, ROOT } from '../store/home.js';

const home = mkdtempSync(join(tmpdir(), 'oomtune-dashboard-'));

const PROGRAM = join(ROOT, 'bin', 'oomtune.js');
const environment = (): NodeJS.ProcessEnv => ({ ...process.env, OOMTUNE_HOME: home, OOMTUNE_REDIS_URL: '' });

/** The command line, as a user has it. */
function oomtune(...args: string[]): string {
  return execFileSync(process.execPath, [PROGRAM, ...args], { env: environment(), encoding: 'utf8', stdio: 'pipe' });
}
const status = (): { running: boolean; dashboard: string | null } => JSON.parse(oomtune('daemon', 'status', '--json'));
const failure = (...args: string[]): { code: number; said: { error: { code: string; remedy: string } } } => {
  try {
    oomtune(...args, '--json');
  } catch (error) {
    const { status: code, stdout } = error as { status: number; stdout: string };
    return { code, said: JSON.parse(stdout) };
  }
  throw new Error('it did not fail');
};

afterAll(() => {
  oomtune('daemon', 'stop');
  oomtune('redis', 'stop');
  rmSync(home, { recursive: true, force: true });
});

it('serves the dashboard with the daemon, and prints its address with the token', async () => {
  expect(failure('dashboard')).toMatchObject({ code: 5, said: { error: { code: 'OOMTUNE_DAEMON_DOWN' } } });
  const port = await freePort();
  oomtune('daemon', 'start', '--http-port', String(port));
  const url = `http://127.0.0.1:${port}/`;
  expect(status().dashboard).toBe(url);
  const address = oomtune('dashboard').trim();
  expect(address).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]{43}$/);
  expect(JSON.parse(oomtune('dashboard', '--json'))).toEqual({ schema: 1, url, address });
  expect(statSync(join(home, 'daemon', 'dashboard-token')).mode & 0o777).toBe(0o600);
  const authorization = `Bearer ${address.split('#token=')[1]}`;
  expect((await fetch(`${url}api/session`, { headers: { authorization } })).status).toBe(200);
  expect((await fetch(`${url}metrics`)).status).toBe(401);
  oomtune('daemon', 'stop');
  expect(status()).toMatchObject({ running: false, dashboard: null });
  await expect(fetch(url)).rejects.toThrow();
});

it('goes on without a dashboard where its port is taken', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as { port: number };
  const started = spawnSync(process.execPath, [PROGRAM, 'daemon', 'start', '--http-port', String(port)], {
    encoding: 'utf8',
    env: environment(),
  });
  expect(started.status).toBe(0);
  expect(started.stderr).toContain(
    `no dashboard and no metrics (listen EADDRINUSE: address already in use 127.0.0.1:${port})`,
  );
  expect(status()).toMatchObject({
    running: true,
    dashboard: null,
    dashboard_fault: expect.stringContaining('EADDRINUSE'),
  });
  expect(failure('dashboard').said.error.remedy).toContain('its port was taken');
  oomtune('daemon', 'stop');
  other.close();
});

it('serves metrics to everybody, or nothing at all, if it is told to', async () => {
  const port = await freePort();
  oomtune('daemon', 'start', '--http-port', String(port), '--metrics-open');
  expect(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()).toContain('oomtune_redis_up 1');
  oomtune('daemon', 'stop');
  oomtune('daemon', 'start', '--http-port', '0');
  expect(status()).toMatchObject({ running: true, dashboard: null });
  const holds = 'import time; held = bytearray(50 << 20); time.sleep(2)';
  const job = oomtune('submit', '--device', 'cpu', '--budget', '200MiB', '--', 'python3', '-c', holds).trim();
  oomtune('wait', job);
  expect(oomtune('explain', job)).toContain('Memory over time'); // it is looked at all the same
  for (const wrong of ['65536', '-1', 'x', '']) {
    expect(failure('daemon', 'run', `--http-port=${wrong}`), wrong).toMatchObject({ code: 2 });
  }
});
