import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { startRedis } from '../store/home.js';
import { Oomtune, PYTHON } from './oomtune.js';

const oomtune = new Oomtune();
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});
afterAll(() => oomtune.close());

const script = join(oomtune.home, 'train.py');
writeFileSync(
  script,
  `
import os, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
print('begun', flush=True)
while not os.path.exists('go'): time.sleep(0.05)
for (x,) in DataLoader(TensorDataset(torch.randn(512 * int(sys.argv[2]), 64)), batch_size=512):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    time.sleep(0.1)
print('done', flush=True)
sys.exit(int(sys.argv[1]))
`,
);

/** A run whose job waits until `go`, and its Redis. */
async function begun(name: string, code: number, ...redisArgs: string[]) {
  const server = await startRedis(redisArgs);
  stops.push(server.stop);
  const cwd = join(oomtune.home, name);
  mkdirSync(cwd);
  const url = `redis://127.0.0.1:${server.port}`;
  const words = ['run', '--redis', url, '--name', name, '--device', 'cpu', '--budget', '2GiB', '--'];
  const run = oomtune.start([...words, PYTHON, script, String(code), '4'], { cwd });
  await vi.waitFor(() => expect(run.printed()).toContain('begun'), { timeout: 60_000, interval: 50 });
  const done = () => vi.waitFor(() => expect(run.printed()).toContain('done'), { timeout: 60_000, interval: 50 });
  return { run, server, url, done, go: () => writeFileSync(join(cwd, 'go'), '') };
}
const explain = async (name: string) => (await oomtune.call(['explain', name])).stdout;

describe('a run whose Redis goes', () => {
  it.each([0, 7])(
    'ends a few seconds after its job, with the exit code %i, and one note of what is not recorded',
    async (code) => {
      const { run, server, go, done } = await begun(`gone${code}`, code);
      await server.stop();
      go();
      await done();
      const since = Date.now();
      const ended = await run.ended;
      expect(Date.now() - since).toBeLessThan(20_000);
      expect(ended.code).toBe(code);
      expect(ended.stderr).toMatch(/does not answer\. What is to be read or written there waits.*\n {2}Start it again/);
      expect(ended.stderr.match(/note: Redis has taken nothing since the job ended/g)).toHaveLength(1);
      expect(ended.stderr).toContain('`oomtune doctor`');
      expect(await explain(`gone${code}`)).toContain(code === 0 ? 'It succeeded' : 'It failed');
    },
  );

  it('leaves at the first signal, once nothing of the job runs any more', async () => {
    const { run, server, go, done } = await begun('signalled', 0);
    await server.stop();
    go();
    await done();
    await delay(2000);
    const since = Date.now();
    run.child.kill('SIGTERM');
    const { code, stderr } = await run.ended;
    expect(Date.now() - since).toBeLessThan(3000);
    expect(code).toBe(143);
    expect(stderr).not.toContain('still ending what runs');
  });

  it('ends where it answers with errors, and says what helps', async () => {
    const { run, url, go } = await begun('refusing', 0);
    const { Redis } = await import('ioredis');
    const client = new Redis(url);
    await client.config('SET', 'min-replicas-to-write', '1');
    client.disconnect();
    go();
    const { code, stderr } = await run.ended;
    expect(code).toBe(0);
    expect(stderr.match(/note: What the job takes could not be recorded: .* Bring the replicas back/g)).toHaveLength(1);
    expect(stderr).not.toContain('"level"');
    expect(await explain('refusing')).toContain('It succeeded');
  });
});

it('redis stop names the run that uses it', async () => {
  const words = ['run', '--name', 'mine', '--device', 'cpu', '--no-tune', '--', 'sh', '-c', 'echo begun; sleep 8'];
  const run = oomtune.start(words);
  await vi.waitFor(() => expect(run.printed()).toContain('begun'), { timeout: 60_000, interval: 50 });
  const { stderr } = await oomtune.call(['redis', 'stop']);
  expect(stderr).toMatch(/^note: oomtune run of mine \(process \d+\) uses it[^\n]*\nstopped\n$/);
  expect((await run.ended).code).toBe(0);
});

it.runIf(process.getuid?.() === 0)(
  'a run whose home is full goes on, and each note of what is not recorded says what helps',
  async () => {
    const disk = mkdtempSync(join(tmpdir(), 'oomtune-full-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk]);
    const env = { OOMTUNE_HOME: disk };
    stops.push(async () => {
      await oomtune.call(['redis', 'stop'], { env });
      execFileSync('umount', ['--lazy', disk]);
    });
    const cwd = join(oomtune.home, 'full');
    mkdirSync(cwd);
    const words = ['run', '--name', 'full', '--device', 'cpu', '--budget', '2GiB', '--', PYTHON, script, '0', '80'];
    const run = oomtune.start(words, { cwd, env });
    await vi.waitFor(() => expect(run.printed()).toContain('begun'), { timeout: 60_000, interval: 50 });
    const { bavail, bsize } = statfsSync(disk);
    expect(() => writeFileSync(join(disk, 'fill'), Buffer.alloc(bavail * bsize + 4096))).toThrow('ENOSPC');
    writeFileSync(join(cwd, 'go'), '');
    const { code, stderr } = await run.ended;
    expect(code).toBe(0);
    expect(stderr).not.toMatch(/"level"|Error: ENOSPC/);
    expect(stderr).toMatch(/note: What `oomtune explain` tells of it could not be recorded: .* Make room there/);
  },
);
