import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statfsSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'bullmq';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readDaemonFile } from '../../src/daemon/daemon-file.js';
import { holdJob, releaseJob } from '../../src/daemon/index.js';
import { labelFor } from '../../src/daemon/routing.js';
import { ROOT, startRedis, until } from '../store/home.js';
import { Host, hostName, sleep } from './host.js';

const FIXTURE = join(ROOT, 'test/fixtures/daemon/daemon.mjs');
const MIB = 1024 ** 2;
const root = process.getuid?.() === 0;
if (!root) console.warn('Skipped: only root can mount a disk of its own to fill.');

let disk: string;
let host: Host;
beforeEach(() => {
  disk = mkdtempSync(join(tmpdir(), 'oomtune-disk-'));
  if (!root) return;
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=128m', 'tmpfs', disk]);
  const { TMPDIR } = process.env;
  process.env.TMPDIR = disk;
  host = new Host(); // its home is on that disk, what its jobs leave is not
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  Object.assign(host, { work: mkdtempSync(join(tmpdir(), 'oomtune-work-')) });
});
afterEach(async () => {
  if (!root) return;
  await host.close();
  execFileSync('umount', ['--lazy', disk]);
  rmSync(disk, { recursive: true, force: true });
});

/** Takes room away until only `left` bytes are free. Returns how to give it back. */
function fill(left: number): () => void {
  const path = join(disk, 'filler');
  const file = openSync(path, 'w');
  const free = () => {
    const { bavail, bsize } = statfsSync(disk);
    return bavail * bsize;
  };
  try {
    while (free() > left) writeSync(file, Buffer.alloc(Math.min(MIB, Math.max(4096, free() - left))));
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe('ENOSPC');
  }
  closeSync(file);
  return () => rmSync(path);
}

async function oomtune(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [join(ROOT, 'bin', 'oomtune.js'), ...args], {
    env: { PATH: process.env.PATH, HOME: host.home, OOMTUNE_HOME: host.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said.out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said.err += text;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, ...said };
}

test.skipIf(!root)(
  'a full disk ends no daemon, and how a job ended is not lost',
  async () => {
    expect((await oomtune('daemon', 'start', '--cpu-lanes', '4', '--http-port', '0')).code).toBe(0);
    const pid = readDaemonFile(hostName())?.pid;
    const go = join(host.work, 'go');
    const wait = `while [ ! -e ${go} ]; do sleep 0.1; done`;
    const good = await host.shell(`${wait}; exit 0`, { retries: 5 });
    const bad = await host.shell(`${wait}; exit 7`, { retries: 5 });
    const loud = await host.shell(`${wait}; head -c 3000000 /dev/zero | tr '\\0' x; exit 0`, { retries: 5 });
    for (const id of [good, bad, loud]) await host.state(id, 'running');
    const makeRoom = fill(0);
    // Redis stands on that disk too, and says that it cannot save: which is not the same as that there is none
    const refused = await oomtune('submit', '--device', 'cpu', '--preset', 'none', '--', 'true');
    expect([refused.code, refused.err]).toEqual([5, expect.stringMatching(/HOME_UNUSABLE|REDIS_REFUSED/)]);
    expect(refused.err).not.toContain('UNREACHABLE');
    const shown = await oomtune('status', good);
    expect([shown.code, shown.out]).toEqual([0, expect.stringContaining(good)]);
    writeFileSync(go, '');
    await until(() => host.processes().length === 0, 30);
    await sleep(3000);
    expect(readDaemonFile(hostName())?.pid).toBe(pid);
    makeRoom();
    expect(await host.state(good, 'succeeded', 60)).toMatchObject({ exit_code: 0, failure: null });
    expect(await host.state(bad, 'failed', 60)).toMatchObject({ exit_code: 7 });
    expect(await host.state(loud, 'succeeded', 60)).toMatchObject({ exit_code: 0 });
    expect((await oomtune('logs', '-n', '1', loud)).err).toMatch(
      /of its output were lost: the disk of its log was full/,
    );
    expect((await oomtune('logs', good)).err).toBe('');
    expect([good, bad, loud].map((id) => host.starts(id))).toEqual([1, 1, 1]);
    expect(readDaemonFile(hostName())?.pid).toBe(pid);
    await host.state(await host.shell('true'), 'succeeded');
  },
  180_000,
);

test.skipIf(!root)('with little room no job is taken, which is told, until there is some again', async () => {
  await host.start({ sweepMs: 300, heartbeatMs: 300 });
  await host.state(await host.shell('true'), 'succeeded');
  const makeRoom = fill(20 * MIB);
  await sleep(600);
  const id = await host.shell('true');
  await until(async () => (await host.job(id)).reason?.includes('lacks room') ?? false);
  expect(host.starts(id)).toBe(0);
  expect(await oomtune('daemon', 'status')).toMatchObject({
    code: 0,
    out: expect.stringContaining('64 MiB are kept'),
  });
  expect((await oomtune('doctor')).out).toMatch(/disk/);
  expect(host.said).toContain('no job is taken until there is room');
  makeRoom();
  await host.state(id, 'succeeded');
});

test.skipIf(!root)('a daemon whose stderr cannot be written to goes on', async () => {
  const log = join(disk, 'stderr');
  expect(existsSync(log)).toBe(false);
  // /dev/full takes nothing, ever
  const child = spawn(
    'sh',
    [
      '-c',
      'exec "$0" "$1" "$2" 2> /dev/full',
      process.execPath,
      join(ROOT, 'test/fixtures/daemon/daemon.mjs'),
      '{"cpuLanes":2}',
    ],
    {
      env: { PATH: process.env.PATH, HOME: host.home, LANG: 'C.UTF-8', OOMTUNE_HOME: host.home, OOMTUNE_LOG: 'trace' },
      stdio: 'ignore',
    },
  );
  host.daemon = child;
  await until(() => readDaemonFile(hostName())?.ready === true, 30);
  const id = await host.shell('echo hello; exit 3');
  expect(await host.state(id, 'failed')).toMatchObject({ exit_code: 3 });
  expect(child.exitCode).toBeNull();
  expect(readFileSync(join((await host.job(id)).launches[0]?.dir as string, 'log'), 'utf8')).toBe('hello\n');
});

test.skipIf(!root)('a job that failed on a disk so full that its log holds no word of it is told by that', async () => {
  await host.start();
  const big = join(disk, 'big');
  const { failure } = await host.state(await host.shell(`cat /dev/zero > ${big}; rm ${big}; exit 1`), 'failed');
  expect(failure).toMatchObject({ class: 'disk_full' });
  expect(failure?.fields.cause).toMatch(/^The disk of its log was full: \d+ B of its output were lost\.$/);
});

test.skipIf(!root)(
  'what the log of a daemon could not hold is counted, and told when there is room again',
  async () => {
    const small = mkdtempSync(join(tmpdir(), 'oomtune-small-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', small]);
    try {
      const log = join(small, 'stderr');
      const filler = join(small, 'filler');
      // The rest of the log's own last page, too
      const full = () =>
        execFileSync('sh', ['-c', 'for f; do cat /dev/zero >> "$f"; done 2> /dev/null || true', 'sh', filler, log]);
      const child = spawn('sh', ['-c', 'exec "$0" "$1" \'{"cpuLanes":2}\' 2>> "$2"', process.execPath, FIXTURE, log], {
        env: {
          PATH: process.env.PATH,
          HOME: host.home,
          LANG: 'C.UTF-8',
          OOMTUNE_HOME: host.home,
          OOMTUNE_LOG: 'trace',
        },
        stdio: 'ignore',
      });
      host.daemon = child;
      await until(() => readDaemonFile(hostName())?.ready === true, 30);
      full();
      await host.state(await host.shell('true'), 'succeeded');
      rmSync(filler);
      await host.state(await host.shell('true'), 'succeeded');
      expect(readFileSync(log, 'utf8')).toMatch(/"lost":[1-9]\d*,"msg":"lines of this log were lost"/);
      await host.kill();
    } finally {
      execFileSync('umount', ['--lazy', small]);
      rmSync(small, { recursive: true, force: true });
    }
  },
);

test.skipIf(!root)(
  'a job that was taken from its queue by a request whose answer was lost is taken again',
  async () => {
    await host.start({ sweepMs: 300, heartbeatMs: 300 });
    await host.state(await host.shell('true'), 'succeeded');
    const makeRoom = fill(20 * MIB); // so that the job waits in its queue
    await sleep(600);
    const id = await host.shell('true');
    await until(async () => (await host.job(id)).reason?.includes('lacks room') ?? false);
    const { connection, keys } = await host.store();
    const worker = new Worker(labelFor(await host.job(id)), null, {
      connection: connection.another(),
      prefix: keys.prefix,
      autorun: false,
    });
    const token = readFileSync(join(host.home, 'daemon', 'token'), 'utf8').trim();
    expect((await worker.getNextJob(token, { block: false }))?.data).toMatchObject({ job: id });
    await worker.close(true);
    makeRoom();
    expect((await host.state(id, 'succeeded')).launches).toHaveLength(1);
  },
);

test.skipIf(!root)('a job whose launch finds no room on the disk waits for it, and is not failed', async () => {
  const redis = await startRedis();
  const { TMPDIR } = process.env;
  process.env.TMPDIR = disk;
  const full = new Host(`redis://127.0.0.1:${redis.port}`);
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  Object.assign(full, { work: host.work });
  try {
    await full.start({ roomBytes: 0 }); // as if the room went between the look and the launch
    const id = await full.shell('exit 3');
    await holdJob(await full.store(), id);
    const giveBack = fill(0);
    await releaseJob(await full.store(), id);
    await until(async () => (await full.job(id)).reason?.startsWith('waits for room on the disk') === true);
    giveBack();
    expect(await full.ended(id)).toMatchObject({ state: 'failed', exit_code: 3 });
    expect(full.starts(id)).toBe(1);
  } finally {
    await full.close();
    await redis.stop();
    process.env.OOMTUNE_HOME = host.home;
  }
});
