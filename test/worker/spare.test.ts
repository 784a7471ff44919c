import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JobRecord } from '../../src/contract/job.js';
import type { JobOptions } from '../../src/contract/options.js';
import { processesOf } from '../../src/runtime/marks.js';
import { Detached } from '../../src/worker/launch/detached.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'oomtune-spare-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** 64 samples of it take some 35 MiB, 16 some 15 MiB. It writes down its start, and its weights at the end. */
function script({ before = '', loop = '', after = '' } = {}): string {
  const path = join(folder, 'train.py');
  writeFileSync(
    path,
    `
open('starts', 'a').write('start\\n')
import hashlib, os, random, signal, sys, tempfile, threading, time
import torch
from torch import nn, save
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); random.seed(0)
data = TensorDataset(torch.randn(512, 64), torch.randint(4, (512,)))
${before}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 2048), nn.Linear(2048, 4)
    def forward(self, x):
        h = torch.tanh(self.a(x))
        kept = torch.ones(len(x), 65536) * h[:, :1]
        return self.b(h) + kept.tanh().mean(1, keepdim=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
step = 0
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
${loop.replace(/^(?=.)/gm, '        ')}
${after}
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(hashlib.sha1(weights).hexdigest(), random.random(), torch.rand(1).item(), flush=True)
`,
  );
  return path;
}

/** Memory enough for the script's own batch, and for a quarter of it. */
const FITS = '200MiB';
const MISFITS = '26MiB';

function bench(path: string, budget: string, options: Partial<JobOptions> = {}, purpose: 'run' | 'submit' = 'run') {
  return workbench(purpose, [python, path], { budget, cwd: folder, ...options });
}
type Bench = ReturnType<typeof bench>;

const starts = (): number => readFileSync(join(folder, 'starts'), 'utf8').split('\n').length - 1;
const recordOf = ({ persisted }: Bench): JobRecord => Object.assign({}, ...persisted) as JobRecord;
const dirOf = (one: Bench, launch = 0): string => recordOf(one).launches[launch]?.dir as string;
const logOf = (one: Bench, launch = 0): string => readFileSync(join(dirOf(one, launch), 'log'), 'utf8');
const purposes = (one: Bench): string[] => recordOf(one).launches.map(({ purpose }) => purpose);
const NAME = 'oomtune-spare';
const spares = (one: Bench): number =>
  processesOf(dirOf(one)).filter((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === NAME).length;

describe('a job that does not fit as it stands', () => {
  it('is started twice: the search takes forks that the job has left', async () => {
    const path = script();
    const spared = bench(path, MISFITS);
    expect(await runJob(spared.request, spared.deps)).toMatchObject({ outcome: 'succeeded', launches: 2 });
    expect(starts()).toBe(2);
    expect(purposes(spared)).toEqual(['run', 'run']);
    await spared.noneLeft();

    const started = bench(path, MISFITS, { fork: false });
    expect(await runJob(started.request, started.deps)).toMatchObject({ outcome: 'succeeded', launches: 3 });
    expect(starts()).toBe(5);
    const sizes = (of: Bench) => recordOf(of).journal.map(({ micro_batch, outcome }) => [micro_batch, outcome]);
    expect(sizes(spared)).toEqual(sizes(started));
    // Tables hashed by address let two processes differ by some hundred KiB.
    for (const [at, { peaks }] of recordOf(spared).journal.entries()) {
      const other = recordOf(started).journal[at]?.peaks.total_bytes as number;
      if (at > 0) expect(Math.abs((peaks.total_bytes as number) - other)).toBeLessThan(1024 ** 2);
    }
    const chosen = ({ recorded }: Bench) => [...recorded.values()].map((one) => [one.micro_batch, one.accumulation]);
    expect(chosen(spared)).toEqual(chosen(started));
    expect(logOf(spared, 1)).toBe(logOf(started, 2));
  });

  it('is not written into by its search', async () => {
    const path = script({
      loop: "print('step', step)\nsave(model.state_dict(), 'model.pt')\nos.path.isfile('kept') or open('kept', 'w').close()",
    });
    const kept = join(folder, 'model.pt');
    writeFileSync(kept, 'of an earlier run');
    const one = bench(path, MISFITS);
    one.deps.progress = ({ type }) => void (type === 'life' && one.controller.abort());
    await expect(runJob(one.request, one.deps)).rejects.toThrow();
    expect(readFileSync(kept, 'utf8')).toBe('of an earlier run');
    expect(logOf(one)).not.toContain('step');
    await one.noneLeft();
  });

  it.each([
    ['where a thread would be missing', 'threading.Thread(target=threading.Event().wait, daemon=True).start()'],
    ['where it has a child', "import subprocess; child = subprocess.Popen(['sleep', '2'])"],
    ['where it has locked a file', "import fcntl; lock = open('lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)"],
    ['where a tracker may have begun to write', "sys.modules['wandb'] = sys"],
    [
      'where what it needs goes with it',
      "gone = tempfile.TemporaryDirectory(); here = os.path.join(gone.name, 'x'); open(here, 'w').close()",
    ],
  ])('is started for its search, too, %s', async (_, before) => {
    const one = bench(script({ before, loop: before.startsWith('gone') ? 'open(here)' : '' }), MISFITS);
    expect(await runJob(one.request, one.deps)).toMatchObject({ outcome: 'succeeded', launches: 3 });
    expect(starts()).toBe(3);
    expect(purposes(one)).toEqual(['run', 'search', 'run']);
    await one.noneLeft();
  });

  it('leaves nothing behind when it is cancelled in its search', async () => {
    const one = bench(script(), MISFITS);
    one.deps.progress = ({ type }) => void (type === 'life' && one.controller.abort());
    await expect(runJob(one.request, one.deps)).rejects.toThrow();
    expect(starts()).toBe(1);
    await one.noneLeft();
  });

  it('is searched for and run by the next daemon where the first is gone in its search', async () => {
    const path = script();
    const one = bench(path, MISFITS, {}, 'submit');
    one.deps.progress = ({ type }) =>
      void (type === 'probe' && (recordOf(one).journal ?? []).length > 2 && one.controller.abort(new Detached()));
    await expect(runJob(one.request, one.deps)).rejects.toThrow();
    await one.noneLeft();
    const next = bench(path, MISFITS, {}, 'submit');
    const { launches, journal } = recordOf(one);
    Object.assign(next.request, { jobId: one.request.jobId, launches, journal });
    expect(await runJob(next.request, next.deps)).toMatchObject({
      outcome: 'succeeded',
      config: { effective_batch: 64 },
    });
    expect(recordOf(next).journal.filter(({ outcome }) => outcome === 'device_oom')).toHaveLength(1);
    await next.noneLeft();
  });

  it('is not searched for longer than a search may last', async () => {
    const path = script();
    writeFileSync(
      path,
      readFileSync(path, 'utf8').replace(
        'model = Net()',
        "model = Net()\nos.environ['OOMTUNE_HOOK'] == 'probe' and time.sleep(600)",
      ),
    );
    const one = bench(path, MISFITS, { timeoutSeconds: 10 });
    expect(await runJob(one.request, one.deps)).toMatchObject({ outcome: 'timeout' });
    await one.noneLeft();
  });
});

describe('a job that fits', () => {
  it('is the process that was started, with no child, and trains to the same weights', async () => {
    const path = script({
      before: 'signal.signal(signal.SIGCHLD, lambda *_: print("a child"))',
      after:
        "try: os.wait()\nexcept ChildProcessError: print('childless')\nprint(sorted(t.name for t in threading.enumerate()), signal.getsignal(signal.SIGTERM))",
    });
    const spared = bench(path, FITS);
    expect(await runJob(spared.request, spared.deps)).toMatchObject({ outcome: 'succeeded', launches: 1 });
    const bare = bench(path, FITS, { tune: false });
    expect(await runJob(bare.request, bare.deps)).toMatchObject({ outcome: 'succeeded', launches: 1 });
    expect(logOf(spared)).toBe(logOf(bare));
    expect(logOf(spared)).toContain('childless');
    expect(logOf(spared)).not.toContain('a child');
    expect(existsSync(join(dirOf(spared), 'search.log'))).toBe(false);
    await spared.noneLeft();
  });

  /** A job that waits at a step until told to go on. */
  function waiting(at: number): { path: string; go: () => void } {
    const go = join(folder, 'go');
    const path = script({
      loop: `while step == ${at} and not os.path.exists(${JSON.stringify(go)}): time.sleep(0.02)`,
    });
    return { path, go: () => writeFileSync(go, '') };
  }

  it('keeps its spare until its first steps have shown that it fits', async () => {
    const { path, go } = waiting(1);
    const one = bench(path, FITS);
    const work = runJob(one.request, one.deps);
    await expect.poll(() => one.events.some(({ type }) => type === 'step') && spares(one), { timeout: 60_000 }).toBe(1);
    go();
    expect(await work).toMatchObject({ outcome: 'succeeded', launches: 1 });
    await one.noneLeft();

    rmSync(join(folder, 'go'));
    const later = waiting(8);
    const two = bench(later.path, FITS);
    const second = runJob(two.request, two.deps);
    await expect.poll(() => two.events.some(({ type }) => type === 'lasts'), { timeout: 60_000 }).toBe(true);
    await expect.poll(() => spares(two), { timeout: 10_000 }).toBe(0);
    later.go();
    expect(await second).toMatchObject({ outcome: 'succeeded', launches: 1 });
  });

  it('loses its spare with its daemon, and goes on', async () => {
    const { path, go } = waiting(1);
    const one = bench(path, FITS, {}, 'submit');
    const work = runJob(one.request, one.deps);
    await expect.poll(() => one.events.some(({ type }) => type === 'step') && spares(one), { timeout: 60_000 }).toBe(1);
    one.controller.abort(new Detached());
    await expect(work).rejects.toBeInstanceOf(Detached);
    await expect.poll(() => spares(one), { timeout: 10_000 }).toBe(0);
    go();
    const next = bench(path, FITS, {}, 'submit');
    Object.assign(next.request, { jobId: one.request.jobId, launches: recordOf(one).launches });
    expect(await runJob(next.request, next.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(starts()).toBe(1);
    await next.noneLeft();
  });

  it.each([
    ['is cancelled', {}, 'cancelled'],
    ['runs out of time', { timeoutSeconds: 12 }, 'timeout'],
  ])('leaves nothing behind where it %s while its spare waits', async (_, options, outcome) => {
    const { path } = waiting(1);
    const one = bench(path, FITS, options);
    const work = runJob(one.request, one.deps);
    await expect.poll(() => one.events.some(({ type }) => type === 'step') && spares(one), { timeout: 60_000 }).toBe(1);
    if (outcome === 'cancelled') one.controller.abort();
    expect(await work).toMatchObject({ outcome });
    await one.noneLeft();
  });

  it('ends as it does without, and its spare with it, where it fails otherwise', async () => {
    const path = script({ loop: 'step == 2 and sys.exit(7)' });
    const one = bench(path, FITS);
    expect(await runJob(one.request, one.deps)).toMatchObject({ outcome: 'failed', exit_code: 7, launches: 1 });
    await one.noneLeft();
    const killed = bench(script({ loop: 'step == 2 and os.kill(os.getpid(), 9)' }), FITS);
    expect(await runJob(killed.request, killed.deps)).toMatchObject({
      outcome: 'failed',
      signal: 'SIGKILL',
      launches: 1,
    });
    await killed.noneLeft();
  });
});
