import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { until } from '../store/home.js';
import { buildCard, GiB } from './card.js';

const ROOT = join(import.meta.dirname, '..', '..');
const HOLD = join(ROOT, 'test', 'fixtures', 'cuda', 'hold.py');
let programs: string;
beforeAll(async () => {
  programs = await buildCard('plain');
}, 600_000);

/** A pretended card of 24 GiB that several people use, each with a home and a Redis of his own. */
let place: string;
const homes: string[] = [];
const children: ChildProcess[] = [];
beforeEach(() => {
  place = mkdtempSync(join(tmpdir(), 'oomtune-shared-card-'));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const home of homes.splice(0)) await oomtune(home, 'redis', 'stop').ended;
  rmSync(place, { recursive: true, force: true });
});
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
});

const environment = () => ({
  PATH: process.env.PATH ?? '',
  LD_LIBRARY_PATH: join(programs, 'fake', 'now'),
  FAKE_STATE: join(place, 'card'),
  FAKE_CAPACITY: String(24 * GiB),
});

function home(): string {
  const folder = mkdtempSync(join(place, 'home-'));
  homes.push(folder);
  return folder;
}

function start(argv: string[], env: Record<string, string>) {
  const child = spawn(argv[0] as string, argv.slice(1), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said.out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said.err += text;
  });
  return { child, said, ended: once(child, 'close').then(([code]) => code as number | null) };
}

const oomtune = (folder: string, ...args: string[]) =>
  start([process.execPath, join(ROOT, 'bin', 'oomtune.js'), ...args], { ...environment(), OOMTUNE_HOME: folder });

/** Somebody who knows nothing of oomtune: a desktop, say. */
async function stranger(mebibytes: number) {
  const started = start(['/usr/bin/python3', HOLD, String(mebibytes), '300'], environment());
  await until(() => started.said.out.includes('holds'));
  return started.child;
}

const hold = (mebibytes: number | string, seconds: number) => [
  '--',
  '/usr/bin/python3',
  HOLD,
  String(mebibytes),
  String(seconds),
];
const PLAIN = ['run', '--no-tune'];
const SEARCH = ['find-batch', '--preset', 'none', '--max-batch', '4', '--max-launches', '3'];

describe('searches with a budget', () => {
  test('reserve it and no more: four run at a time on one card, and say that their speeds were not measured alone', async () => {
    const folder = home();
    await oomtune(folder, 'redis', 'url').ended;
    const names = ['one', 'two', 'three', 'four'];
    const searches = names.map((name) =>
      oomtune(folder, ...SEARCH, '--json', '--name', name, '--budget', '5GiB', ...hold('{micro_batch}', 3)),
    );
    for (const { ended } of searches) expect(await ended).toBe(0);
    for (const { said } of searches) {
      expect(said.err).not.toContain('waiting');
      const { notes, device } = JSON.parse(said.out);
      expect(device).toMatchObject({ id: 'cuda:0', budget_bytes: 5 * GiB });
      expect(device).not.toHaveProperty('room_bytes');
      expect(notes.join('\n')).toMatch(/not measured alone: (j-\w+(, | and ))*j-\w+ used cuda:0 meanwhile/);
    }
  });

  test('say so in the text, too, and not where they were alone', async () => {
    const folder = home();
    const alone = oomtune(folder, ...SEARCH, '--budget', '5GiB', ...hold('{micro_batch}', 0.1));
    expect(await alone.ended).toBe(0);
    expect(alone.said.out).not.toContain('not measured alone');
    oomtune(folder, ...PLAIN, '--budget', '5GiB', ...hold(100, 60));
    await until(async () => (await reserved(folder)) === 5 * GiB);
    const beside = oomtune(folder, ...SEARCH, '--budget', '5GiB', ...hold('{micro_batch}', 0.1));
    expect(await beside.ended).toBe(0);
    expect(beside.said.out).toMatch(/note: The speeds were not measured alone: j-\w+ used cuda:0 meanwhile/);
  });
});

async function reserved(folder: string): Promise<number> {
  const { said, ended } = oomtune(folder, 'devices', '--json');
  await ended;
  return JSON.parse(said.out).devices[0].reserved_bytes;
}

describe('--exclusive, and no budget', () => {
  test.each([
    ['--exclusive', ['--exclusive', '--budget', '5GiB']],
    ['no budget', []],
  ])('%s waits for the other jobs of oomtune, and says so in one line', async (_, options) => {
    const folder = home();
    const first = oomtune(folder, ...PLAIN, '--budget', '5GiB', ...hold(100, 60));
    await until(async () => (await reserved(folder)) === 5 * GiB);
    const other = await stranger(2000);
    const waits = oomtune(folder, ...PLAIN, ...options, ...hold(100, 0));
    await until(() => waits.said.err.includes('waiting'));
    // What strangers hold changes all the time, and is not waited for
    other.kill('SIGKILL');
    for (const size of [300, 3000, 700]) (await stranger(size)).kill('SIGKILL');
    first.child.kill('SIGTERM');
    expect(await waits.ended).toBe(0);
    expect(waits.said.err.match(/^waiting for .*$/gm)).toHaveLength(1);
    expect(waits.said.err).toMatch(/^waiting for .*j-\w+ holds 5 GiB$/m);
  });

  test('nobody starts beside a job that has the device alone', async () => {
    const folder = home();
    const alone = oomtune(folder, ...PLAIN, '--exclusive', '--budget', '5GiB', ...hold(100, 60));
    await until(async () => (await reserved(folder)) === 24 * GiB);
    const waits = oomtune(folder, ...PLAIN, '--budget', '1GiB', ...hold(100, 0));
    await until(() => waits.said.err.includes('holds all'));
    alone.child.kill('SIGTERM');
    expect(await waits.ended).toBe(0);
  });
});

describe('beside a desktop that holds a part of the card', () => {
  test.each([
    ['no budget', []],
    ['a budget of the whole card', ['--budget', '24GiB']],
    ['a budget of nearly all of it', ['--budget', '95%']],
  ])('run with %s starts at once and says who holds the rest', async (_, options) => {
    const folder = home();
    const desktop = await stranger(4000);
    const run = oomtune(folder, ...PLAIN, ...options, ...hold(100, 0));
    expect(await run.ended).toBe(0);
    expect(run.said.err).not.toContain('waiting');
    expect(run.said.err).toContain(
      `note: python3 (pid ${desktop.pid}) holds 4 GiB of cuda:0's 24 GiB; 20 GiB are left.`,
    );
  });

  test('a search stays within what is left, and is told in its document', async () => {
    const folder = home();
    const desktop = await stranger(12_000);
    const args = ['find-batch', '--preset', 'none', '--max-launches', '8', '--json', ...hold('{micro_batch}', 0)];
    const search = oomtune(folder, ...args);
    expect(await search.ended).toBe(0);
    const report = JSON.parse(search.said.out);
    const room = 24 * GiB - (12_100 * GiB) / 1024;
    expect(report.device).toMatchObject({ budget_bytes: 24 * GiB, room_bytes: room });
    expect(report.peak_bytes).toBeLessThanOrEqual(0.97 * room);
    expect(report.notes.join('\n')).toContain(`python3 (pid ${desktop.pid})`);
  });

  test('a budget that is free all the same is nobody’s business', async () => {
    const folder = home();
    await stranger(4000);
    const run = oomtune(folder, ...PLAIN, '--budget', '8GiB', ...hold(100, 0));
    expect(await run.ended).toBe(0);
    expect(run.said.err).not.toContain('note:');
  });
});

test('the jobs of another user, who has a Redis of his own, are memory of strangers', async () => {
  const [ada, bob] = [home(), home()] as [string, string];
  oomtune(ada, ...PLAIN, '--budget', '16GiB', ...hold(10_000, 60));
  await until(async () => (await devices(bob)).processes.length === 1);
  expect((await devices(bob)).processes[0]).toMatchObject({ ours: false, name: 'python3' });
  expect((await devices(ada)).processes[0]).toMatchObject({ ours: true });
  const run = oomtune(bob, ...PLAIN, '--budget', '20GiB', ...hold(100, 0));
  expect(await run.ended).toBe(0);
  expect(run.said.err).toMatch(/note: python3 \(pid \d+\) holds 9\.\d+ GiB of cuda:0's 24 GiB/);
});

async function devices(folder: string): Promise<{ processes: { ours: boolean; name: string }[] }> {
  const { said, ended } = oomtune(folder, 'devices', '--json');
  await ended;
  return JSON.parse(said.out).devices[0];
}

test('a queued job waits for the memory of strangers, and one in front of a terminal does not wait for it', async () => {
  const folder = home();
  const desktop = await stranger(4000);
  const daemon = oomtune(folder, 'daemon', 'run', '--http-port', '0');
  await until(() => daemon.said.err.includes('daemon ready'));
  const queued = oomtune(folder, 'submit', '--budget', '22GiB', ...hold(100, 0));
  expect(await queued.ended).toBe(0);
  const job = queued.said.out.trim();
  const status = async () => {
    const { said, ended } = oomtune(folder, 'status', '--json', job);
    await ended;
    return JSON.parse(said.out).jobs[0];
  };
  await until(async () => /used by python3/.test((await status()).reason ?? ''), 30);
  expect(await oomtune(folder, ...PLAIN, '--budget', '22GiB', ...hold(100, 0)).ended).toBe(0);
  expect((await status()).state).toBe('queued');
  desktop.kill('SIGKILL');
  await until(async () => (await status()).state === 'succeeded', 60);
  daemon.child.kill('SIGTERM');
  await daemon.ended;
});
