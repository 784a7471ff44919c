import { existsSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { explainJob } from '../../src/cli/explain-view.js';
import { cancelJob, retryJob } from '../../src/daemon/index.js';
import { until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const SECRET = 'hunter2-do-not-tell';
const MINE = {
  PATH: process.env.PATH,
  HOME: '/home/ada',
  DATA_DIR: '/data/imagenet',
  CC: 'gcc-13',
  SSL_CERT_FILE: '/etc/own.pem',
  WANDB_API_KEY: SECRET,
  HF_TOKEN: SECRET,
  OMPI_MCA_plm: 'isolated',
  PMIX_MCA_gds: 'hash',
  'BASH_FUNC_module%%': '() { eval x; }',
  OOMTUNE_RESUME: '1',
  OOMTUNE_HOOK_SOCKET: '/an/outer/one',
};
/** No shell, as shells drop and set variables of their own. */
const PRINT = ['cp', '/proc/self/environ', 'environment.txt'];

const folder = () => join(host.home, 'daemon', 'environments');
const kept = () => (existsSync(folder()) ? readdirSync(folder()) : []);

/** The job's environment as it saw it. */
function seen(): Record<string, string> {
  const entries = readFileSync(join(host.work, 'environment.txt'), 'utf8').split('\0').filter(Boolean);
  return Object.fromEntries(
    entries.map((entry) => [entry.slice(0, entry.indexOf('=')), entry.slice(entry.indexOf('=') + 1)]),
  );
}

async function inRedis(): Promise<string> {
  const { redis } = (await host.store()).connection;
  const found: string[] = [];
  for (const key of await redis.keys('*')) {
    const bytes = (await redis.dumpBuffer(key)) as Buffer | null;
    const hash = (await redis.type(key)) === 'hash' ? JSON.stringify(await redis.hgetall(key)) : '';
    found.push(hash, bytes?.toString('latin1') ?? '');
  }
  return found.join('\n');
}

test('a job has all of its submitter’s environment and nothing of the daemon’s', async () => {
  await host.start({}, { DATA_DIR: '/daemons', DAEMONS_OWN: 'x', AWS_SECRET_ACCESS_KEY: 'x', LC_ALL: 'C' });
  const id = await host.submit(PRINT, {}, MINE);
  const job = await host.state(id, 'succeeded');
  const environment = seen();
  const { OOMTUNE_RESUME, OOMTUNE_HOOK_SOCKET, ...expected } = MINE;
  expect(environment).toMatchObject(expected);
  for (const name of ['DAEMONS_OWN', 'AWS_SECRET_ACCESS_KEY', 'LC_ALL', 'OOMTUNE_RESUME', 'OOMTUNE_HOOK_SOCKET']) {
    expect(environment).not.toHaveProperty(name);
  }
  expect(environment.OOMTUNE_JOB_ID).toBe(id);
  expect(job.environment?.withheld).toEqual([]);
});

test('it is kept in a private file until the job has ended, and neither in Redis nor in a log', async () => {
  const id = await host.submit(
    ['/bin/sh', '-c', 'echo $$ > launched; while test ! -e go; do sleep 0.05; done'],
    {},
    MINE,
  );
  const [file] = kept();
  expect(readFileSync(join(folder(), file as string), 'utf8')).toContain(SECRET);
  expect(statSync(join(folder(), file as string)).mode & 0o777).toBe(0o600);
  expect(statSync(folder()).mode & 0o777).toBe(0o700);
  await host.start();
  await until(() => existsSync(join(host.work, 'launched')));
  expect(kept()).toEqual([file]);
  expect(await inRedis()).not.toContain(SECRET);
  writeFileSync(join(host.work, 'go'), '');
  await host.state(id, 'succeeded');
  await until(() => kept().length === 0);
  expect(await inRedis()).not.toContain(SECRET);
  expect(host.said).not.toContain(SECRET);
});

test('a relaunch after the daemon was started anew has it, too', async () => {
  await host.start();
  const line = 'echo "$DATA_DIR" >> seen; test -e again && exit 0; touch again; sleep 300';
  const id = await host.submit(['/bin/sh', '-c', line], { retries: 1 }, MINE);
  await until(() => host.lines('seen').length === 1);
  await host.kill();
  for (const pid of host.processes()) process.kill(pid, 'SIGKILL');
  await host.start({}, { DATA_DIR: '/daemons' });
  await host.state(id, 'succeeded');
  expect(host.lines('seen')).toEqual([MINE.DATA_DIR, MINE.DATA_DIR]);
  await until(() => kept().length === 0);
});

test('cancelling a job that waits removes it, and a sweep what was left of jobs that ended elsewhere', async () => {
  const store = await host.store();
  const waits = await host.submit(PRINT, {}, MINE);
  await cancelJob(store, waits);
  expect(kept()).toEqual([]);
  // cancelled by another host, where the file cannot be reached
  const away = await host.submit(PRINT, {}, MINE);
  await store.jobs.cancel(away);
  const stays = await host.submit(PRINT, { after: [away] }, MINE);
  const anothers = join(folder(), 'j-anothers1.0123456789abcdef.json');
  writeFileSync(anothers, JSON.stringify({ store: 'redis://elsewhere {oomtune}', variables: {} }));
  for (const name of kept()) utimesSync(join(folder(), name), 1, 1);
  utimesSync(`${folder()}-swept`, 1, 1);
  await host.submit(PRINT, { after: [away] }, MINE);
  expect(kept().filter((name) => name.startsWith(away))).toEqual([]);
  expect(kept().filter((name) => name.startsWith(stays))).toHaveLength(1);
  expect(existsSync(anothers)).toBe(true);
});

test('a job that cannot start as the one before it failed leaves none', async () => {
  await host.start();
  const before = await host.submit(['false'], {}, MINE);
  const after = await host.submit(PRINT, { after: [before] }, MINE);
  const last = await host.submit(PRINT, { after: [after] }, MINE);
  for (const id of [before, after, last]) await host.state(id, 'failed');
  await until(() => kept().length === 0);
});

test('a retry has the environment of who retries, as the first one is gone', async () => {
  await host.start();
  const store = await host.store();
  const id = await host.submit(PRINT, { env: ['GIVEN=1'] }, MINE);
  await host.state(id, 'succeeded');
  expect(seen()).toMatchObject({ DATA_DIR: '/data/imagenet', GIVEN: '1' });
  await until(() => kept().length === 0);
  await retryJob(store, id, { ...MINE, DATA_DIR: '/data/other', GIVEN: '2' });
  expect(kept()).toHaveLength(1);
  await host.state(id, 'succeeded');
  expect(seen()).toMatchObject({ DATA_DIR: '/data/other', GIVEN: '2' });
  await until(() => kept().length === 0);
});

test('on another host the allow-list applies, and what stayed behind is named', async () => {
  const id = await host.submit(
    [
      'python3',
      '-c',
      'import os; open("allowed", "w").write(str(os.environ.get("OMP_NUM_THREADS"))); os.environ["DATA_DIR"]',
    ],
    {},
    { ...MINE, OMP_NUM_THREADS: '1', SSH_CLIENT: '::1', LS_COLORS: 'x' },
  );
  await host.start({}, { OOMTUNE_HOST: 'elsewhere', OMP_NUM_THREADS: '7', DAEMONS_OWN: SECRET, CC: 'clang' });
  const job = await host.state(id, 'failed');
  expect(host.lines('allowed')).toEqual(['7']);
  expect(job.host).toBe('elsewhere');
  const names = ['HF_TOKEN', 'WANDB_API_KEY', 'CC', 'DATA_DIR', 'SSL_CERT_FILE'];
  expect(job.environment?.withheld).toEqual(names);
  expect(job.failure?.evidence).toContain("KeyError: 'DATA_DIR'");
  expect(job.failure?.fields.advice).toMatch(/^DATA_DIR stayed on /);
  const told = explainJob(job, null, null, (_, text) => text);
  expect(told).toContain(names.join(', '));
  expect(told).toMatch(/remedy: DATA_DIR stayed on /);
  expect(`${told}${await inRedis()}`).not.toContain(SECRET);
});

test('an authentication error is told what stayed behind; an error of another kind is not', async () => {
  const refused = await host.submit(
    ['/bin/sh', '-c', 'echo "401 Client Error: Unauthorized for url" >&2; exit 1'],
    {},
    MINE,
  );
  const shape = await host.submit(['/bin/sh', '-c', 'echo "ValueError: bad shape (3, 4)" >&2; exit 1'], {}, MINE);
  await host.start({}, { OOMTUNE_HOST: 'elsewhere' });
  expect((await host.state(refused, 'failed')).failure?.fields.advice).toContain('WANDB_API_KEY');
  const { failure, environment } = await host.state(shape, 'failed');
  expect(String(failure?.fields.advice)).not.toContain('WANDB_API_KEY');
  expect(environment?.withheld).toContain('WANDB_API_KEY');
});

test('a retry by the dashboard has no environment of its own, and says what it does without', async () => {
  await host.start();
  const id = await host.submit(PRINT, {}, MINE);
  await host.state(id, 'succeeded');
  await retryJob(await host.store(), id);
  const job = await host.state(id, 'succeeded');
  expect(seen()).not.toHaveProperty('DATA_DIR');
  expect(job.environment?.withheld).toContain('DATA_DIR');
  expect(explainJob(job, null, null, (_, text) => text)).toContain('`oomtune retry` gives it the shell');
});
