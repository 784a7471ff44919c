import {
  closeSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { pruneRuns, type Retention, readRetention } from '../../src/daemon/retention.js';
import { holdLock } from '../../src/runtime/folder-lock.js';
import { until } from '../store/home.js';
import { Host } from './host.js';

const HOUR = 3600;
const EVERYTHING: Retention = { days: 1e6, jobs: 1e6, bytes: 1e15, freshMs: 0 };

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-runs-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** The folder of a job that ended so many hours ago. */
function ended(job: string, hours: number, bytes = 0): string {
  const dir = join(folder, job, '1');
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, 'log'), Buffer.alloc(bytes, 'x'));
  const at = Date.now() / 1000 - hours * HOUR;
  for (const path of [dir, join(folder, job)]) utimesSync(path, at, at);
  return dir;
}

const prune = (keep: Partial<Retention>, live: string[] = []): Promise<string[]> =>
  pruneRuns(folder, { ...EVERYTHING, ...keep }, (job) => live.includes(job), createLog('test', 'silent'));

describe('what ended jobs leave in runs/', () => {
  test('is removed by age', async () => {
    for (const [job, hours] of [
      ['a', 1],
      ['b', 23],
      ['c', 25],
      ['d', 999],
    ] as const)
      ended(job, hours);
    expect((await prune({ days: 1 })).sort()).toEqual(['c', 'd']);
    expect(readdirSync(folder).sort()).toEqual(['a', 'b']);
  });

  test('is removed by number, the oldest first', async () => {
    for (const [job, hours] of [
      ['a', 4],
      ['b', 1],
      ['c', 3],
      ['d', 2],
    ] as const)
      ended(job, hours);
    expect((await prune({ jobs: 2 })).sort()).toEqual(['a', 'c']);
  });

  test('is removed by bytes on the disk, the oldest first; a hole is none', async () => {
    const dir = ended('holes', 1);
    const hole = openSync(join(dir, 'log'), 'w');
    ftruncateSync(hole, 2 ** 40);
    closeSync(hole);
    const at = Date.now() / 1000 - HOUR;
    utimesSync(dir, at, at);
    for (const [job, hours] of [
      ['a', 4],
      ['b', 2],
      ['c', 3],
    ] as const)
      ended(job, hours, 1 << 20);
    expect((await prune({ bytes: 2.5 * (1 << 20) })).sort()).toEqual(['a']);
  });

  test('stays while it runs, waits, or ended a moment ago', async () => {
    for (const job of ['runs', 'waits', 'old']) ended(job, 999);
    ended('fresh', 0);
    const lock = holdLock(join(folder, 'runs', '1'));
    expect(await prune({ jobs: 0, freshMs: 60_000 }, ['waits'])).toEqual(['old']);
    lock?.release();
    expect(readdirSync(folder).sort()).toEqual(['fresh', 'runs', 'waits']);
  });

  test('goes without what a link in it leads to', async () => {
    const far = mkdtempSync(join(tmpdir(), 'oomtune-far-'));
    writeFileSync(join(far, 'mine'), '');
    symlinkSync(far, join(ended('a', 9), 'link'));
    symlinkSync(far, join(folder, 'j-link'));
    expect(await prune({ jobs: 0 })).toEqual(['a']);
    expect(existsSync(join(far, 'mine'))).toBe(true);
    rmSync(far, { recursive: true });
  });

  test('is bounded by what config/retention.yaml says', () => {
    expect(readRetention()).toEqual({ days: 30, jobs: 2000, bytes: 20 * 1024 ** 3, freshMs: HOUR * 1000 });
    writeFileSync(join(folder, 'wrong.yaml'), 'runs: {days: -1, jobs: 1, size: 1GiB}\n');
    expect(() => readRetention(join(folder, 'wrong.yaml'))).toThrow();
  });
});

describe('a daemon', () => {
  let host: Host;
  beforeEach(() => {
    host = new Host();
  });
  afterEach(() => host.close());

  test('removes the oldest and leaves what runs, whose log is shown to its end', async () => {
    await host.start({ tidyMs: 300, keptRuns: { ...EVERYTHING, jobs: 2 } });
    const running = await host.shell('echo first; sleep 600');
    await host.state(running, 'running');
    const done: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      done.push(await host.shell(`echo job ${n}`));
      await host.state(done[n] as string, 'succeeded');
    }
    const runs = () => readdirSync(join(host.home, 'runs')).filter((name) => name.startsWith('j-'));
    await until(() => runs().length === 3);
    expect(runs().sort()).toEqual([running, ...done.slice(-2)].sort());
    expect((await (await host.store()).logs.read(done[0] as string)).length).toBeGreaterThan(0);
  });
});
