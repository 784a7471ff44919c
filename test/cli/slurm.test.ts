import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { freePort, noSlurm, Slurm } from '../guides/slurm.js';
import { Oomtune, PROGRAM, PYTHON, ROOT } from './oomtune.js';

vi.setConfig({ testTimeout: 300_000 }); // Slurm takes its time, above all where nobody answers
const reason = noSlurm();
if (reason !== null) console.warn(`\`submit --via slurm\` was not tried: ${reason}`);

interface Entry {
  job: string;
  name: string;
  state: string;
  reason: string | null;
  host: string | null;
  exit_code: number | null;
  failure: { class: string; evidence: string } | null;
  config: { micro_batch: number } | null;
  slurm: { cluster: string; job: string; partition: string | null };
}

describe.skipIf(reason !== null)('submit --via slurm, on a cluster of one node with two partitions', () => {
  // a moment of grace, and a job that is no longer listed soon
  const slurm = new Slurm({ KillWait: '5', MinJobAge: '10', MessageTimeout: '3' });
  const oomtune = new Oomtune();
  const work = join(oomtune.home, 'work');
  const env = () => ({ ...slurm.env, PATH: `${oomtune.env.PATH}:${slurm.env.PATH}` });
  const call = (args: string[], more: NodeJS.ProcessEnv = {}) =>
    oomtune.call(args, { cwd: work, env: { ...env(), ...more } });
  const script = (name: string, text: string) => writeFileSync(join(work, name), text);

  async function submit(options: string[], command: string[], more: NodeJS.ProcessEnv = {}): Promise<string[]> {
    const { code, stdout, stderr } = await call(
      ['submit', '--via', 'slurm', '--device', 'cpu', ...options, '--', ...command],
      more,
    );
    expect(code, stderr).toBe(0);
    return stdout.trim().split('\n');
  }
  async function status(job: string): Promise<Entry> {
    const { stdout, stderr } = await call(['status', '--json', job]);
    const [entry] = (JSON.parse(stdout) as { jobs: Entry[] }).jobs;
    if (entry === undefined) throw new Error(stderr);
    return entry;
  }
  async function until(job: string, state: string): Promise<Entry> {
    for (let looks = 0; ; looks++) {
      const entry = await status(job);
      if (entry.state === state) return entry;
      if (looks > 150) throw new Error(`${job} is ${entry.state}, not ${state}: ${entry.reason}`);
      await new Promise((resolve) => setTimeout(resolve, 1000)); // a look takes a third of a second of CPU
    }
  }
  /** Of all submissions. */
  const folders = () => readdirSync(join(oomtune.home, 'slurm')).map((name) => join(oomtune.home, 'slurm', name));

  beforeAll(async () => {
    mkdirSync(join(work, 'bin'), { recursive: true });
    script(
      'quick.py',
      'import os, sys\nprint("hello", *sys.argv[1:], os.environ.get("TOKEN"), os.getcwd(), os.environ.get("SLURM_TIME_FORMAT"))\n',
    );
    script('slow.py', 'import time\nopen("started", "w").close()\ntime.sleep(600)\n');
    script(
      'nth.py',
      'import os, sys\nn = sys.argv[1]\nprint(n, os.environ["OOMTUNE_ARRAY_INDEX"])\nsys.exit(9 if n == "6" else 0)\n',
    );
    await slurm.start();
  });
  afterEach(async () => {
    await slurm.call('bash', ['-c', 'scancel --user="$(id -u)"']);
  });
  afterAll(async () => {
    await oomtune.close();
    await slurm.close();
  });

  it('runs a job to its end, and shows it like any other', async () => {
    const words = ["it's", '$(touch pwned)', '"', 'a\nb', '`touch pwned`', '--', '; touch pwned'];
    const [job = ''] = await submit(
      ['--partition', 'short', '--name', 'a"b$(touch_pwned)', '--env', 'TOKEN=secret word'],
      [PYTHON, 'quick.py', ...words],
    );
    const waited = await call(['wait', job]);
    expect(waited.code, waited.stderr).toBe(0);
    const entry = await status(job);
    expect(entry).toMatchObject({ state: 'succeeded', exit_code: 0, name: 'a"b$(touch_pwned)' });
    expect(entry.slurm).toMatchObject({ cluster: 'oomtune', partition: 'short' });
    const logs = await call(['logs', job]);
    // and nothing of what oomtune asks Slurm with
    expect(logs.stdout).toContain(`hello ${words.join(' ')} secret word ${work} None`);
    const explained = await call(['explain', job]);
    expect(explained.stdout).toContain(`job ${entry.slurm.job} of oomtune, partition short`);
    expect(existsSync(join(work, 'pwned'))).toBe(false);
    // values of --env are in no file of ours
    for (const folder of folders()) {
      for (const name of ['script', 'arguments.json']) {
        if (existsSync(join(folder, name)))
          expect(readFileSync(join(folder, name), 'utf8')).not.toContain('secret word');
      }
    }
  });

  it('is explained as a job of a daemon is: its search, its launches, with what it ran and where it was cut', async () => {
    script(
      'train.py',
      `
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(8192, 64)), batch_size=8192):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
`,
    );
    const [job = ''] = await submit(['--budget', '100MiB'], [PYTHON, 'train.py']);
    const waited = await call(['wait', job]);
    expect(waited.code, waited.stderr).toBe(0);
    const { stdout } = await call(['explain', job]);
    expect(stdout).toMatch(/its budget 100 MiB/);
    expect(stdout).toMatch(/^oomtune \d.*torch \d/m);
    expect(stdout).toMatch(/The search:\n/);
    expect(stdout).toMatch(/Its batches were cut/);
    const told = JSON.parse((await call(['explain', '--json', job])).stdout) as {
      launches: unknown[];
      probes: unknown[];
    };
    expect(told.launches.length).toBeGreaterThan(0);
    expect(told.probes.length).toBeGreaterThan(0);
    expect(await status(job)).toMatchObject({ cut: { cut: expect.any(String) } });
  });

  it('says what the job failed of, and runs it again', async () => {
    script('fails.py', 'import os, sys\nif not os.path.exists("mended"): sys.exit(7)\n');
    const [job = ''] = await submit([], [PYTHON, 'fails.py']);
    expect((await call(['wait', job])).code).toBe(4);
    expect(await status(job)).toMatchObject({ state: 'failed', exit_code: 7, failure: { class: 'user_error' } });
    script('mended', '');
    const before = (await status(job)).slurm.job;
    expect((await call(['retry', job])).code).toBe(0);
    expect((await call(['wait', job])).code).toBe(0);
    const after = await status(job);
    expect(after).toMatchObject({ state: 'succeeded', exit_code: 0 });
    expect(after.slurm.job).not.toBe(before);
  });

  it('makes one array of many, each with its own end', async () => {
    const jobs = await submit(['--array', '5-7%2', '--name', 'many'], [PYTHON, 'nth.py', '{index}']);
    expect(jobs).toHaveLength(3);
    expect((await call(['wait', ...jobs])).code).toBe(4);
    const entries = await Promise.all(jobs.map(status));
    expect(entries.map(({ state }) => state)).toEqual(['succeeded', 'failed', 'succeeded']);
    expect(entries[1]).toMatchObject({ exit_code: 9, name: 'many-6' });
    const [array] = (entries[0]?.slurm.job ?? '').split('_');
    expect(entries.map((entry) => entry.slurm.job)).toEqual([5, 6, 7].map((index) => `${array}_${index}`));
    expect((await call(['logs', jobs[2] ?? ''])).stdout).toContain('7 7');
  });

  it('fills in a sweep, and searches for all of it under one name', async () => {
    const jobs = await submit(
      ['--sweep', 'lr=1e-3,2e-3', '--sweep', 'seed=0..1'],
      [PYTHON, 'quick.py', '{lr}', '{seed}'],
    );
    expect((await call(['wait', ...jobs])).code).toBe(0);
    const said = await Promise.all(jobs.map(async (job) => (await call(['logs', job])).stdout));
    expect(said.map((text) => /hello (\S+ \S+)/.exec(text)?.[1])).toEqual(['1e-3 0', '1e-3 1', '2e-3 0', '2e-3 1']);
  });

  it('is started again at a smaller size after a late out-of-memory error', async () => {
    copyFileSync(join(ROOT, 'test', 'fixtures', 'worker', 'late_alone.py'), join(work, 'late.py'));
    const options = ['--budget', '100MiB', '--cut', 'loader', '--name', 'late', '--retries', '1'];
    // everything is at stake: it is not started again in place
    const [job = ''] = await submit(options, [PYTHON, 'late.py'], { OOMTUNE_RESTART_SECONDS: '0.1' });
    const { slurm: place } = await status(job);
    const again = async () => (await slurm.job(place.job)).Restarts === '1';
    await waitFor(async () => ((await again()) ? null : `${job} is not started again`));
    const waiting = await until(job, 'queued');
    expect(waiting.reason).toMatch(/^waits in Slurm's partition all/);
    const { stdout } = await call(['recommend', '--json', 'late']);
    expect(JSON.parse(stdout).recommendations).toMatchObject([{ status: 'demoted', known_bad_micro_batch: 64 }]);
    await slurm.call('scontrol', ['update', `JobId=${place.job}`, 'StartTime=now']); // Slurm waits for two minutes
    const ended = await call(['wait', job]);
    expect(ended.code, (await call(['logs', job])).stdout).toBe(0);
    const entry = await status(job);
    expect(entry.slurm.job).toBe(place.job);
    expect(entry.config?.micro_batch).toBeLessThan(64);
    expect((await call(['logs', job])).stdout).toContain('Micro-batch 64 is recorded as too large');
  });

  it('is sized by what is recorded', async () => {
    const found = await call([
      'find-batch',
      '--name',
      'sized',
      '--device',
      'cpu',
      '--budget',
      '150MiB',
      '--max-batch',
      '8',
      '--',
      PYTHON,
      join(ROOT, 'examples', 'mlp.py'),
    ]);
    expect(found.code, found.stderr).toBe(0);
    const { stdout, stderr } = await call([
      'submit',
      '--via',
      'slurm',
      '--name',
      'sized',
      '--sbatch',
      '--hold',
      '--',
      PYTHON,
      join(ROOT, 'examples', 'mlp.py'),
    ]);
    expect(stderr).toContain('sized by sized:cpu:150m:1x');
    const entry = await status(stdout.trim());
    expect(await slurm.job(entry.slurm.job)).toMatchObject({ MinMemoryNode: '1174M', JobState: 'PENDING' });
    expect(entry.reason).toMatch(/^held in Slurm's partition all: JobHeldUser/);
    expect((await call(['explain', stdout.trim()])).stdout).toContain('and held in Slurm');
  });

  it('is cancelled by oomtune and by Slurm, waiting and running, and leaves nothing behind', async () => {
    const [running = ''] = await submit([], [PYTHON, 'slow.py']);
    await until(running, 'running');
    await waitFor(async () => (existsSync(join(work, 'started')) ? null : 'has not started'));
    const [waiting = ''] = await submit(['--sbatch', '--hold'], [PYTHON, 'slow.py']);
    expect((await call(['cancel', waiting, running])).code).toBe(0);
    expect((await status(waiting)).state).toBe('cancelled');
    const entry = await until(running, 'cancelled');
    expect(entry).toMatchObject({ failure: null });
    expect(entry.reason).toContain('CANCELLED');
    await waitFor(
      async () =>
        oomtune
          .leftovers()
          .filter((line) => line.includes('slow.py'))
          .join('\n') || null,
    );
    const [other = ''] = await submit([], [PYTHON, 'slow.py']);
    await until(other, 'running');
    await slurm.call('scancel', [(await status(other)).slurm.job]);
    expect((await until(other, 'cancelled')).exit_code).not.toBe(0);
    expect((await call(['cancel', other])).code).toBe(0); // an ended job is no error
  });

  it('is told to be steered in its own queue', async () => {
    const [job = ''] = await submit(['--sbatch', '--hold'], [PYTHON, 'slow.py']);
    const { slurm: place } = await status(job);
    for (const [verb, command] of [
      ['hold', `scontrol hold ${place.job}`],
      ['release', `scontrol release ${place.job}`],
      ['pause', `scontrol suspend ${place.job}`],
      ['resume', `scontrol resume ${place.job}`],
    ] as const) {
      const { code, stderr } = await call([verb, job]);
      expect(code).toBe(2);
      expect(stderr).toContain(`Write: ${command}`);
    }
    expect((await call(['edit', '--priority', '3', job])).stderr).toContain(`scontrol update JobId=${place.job}`);
    expect((await status(job)).state).toBe('queued');
  });

  it('tells a time limit and a lost node from a failure of its own', async () => {
    const [late = ''] = await submit(['--time', '2s'], [PYTHON, 'slow.py']);
    expect(await until(late, 'timeout')).toMatchObject({ failure: { class: 'timeout' } });
    const [lost = ''] = await submit(['--retries', '0'], [PYTHON, 'slow.py']);
    const { host } = await until(lost, 'running');
    await slurm.call('scontrol', ['update', `NodeName=${host}`, 'State=DOWN', 'Reason=test']);
    const entry = await until(lost, 'failed');
    await slurm.call('scontrol', ['update', `NodeName=${host}`, 'State=RESUME']);
    expect(entry.failure).toMatchObject({ class: 'killed', evidence: expect.stringContaining('NODE_FAIL') });
  });

  it('goes on where the controller does not answer, and says so', async () => {
    script('gate.py', 'import os, time\nwhile not os.path.exists("open"): time.sleep(0.1)\n');
    const [job = ''] = await submit([], [PYTHON, 'gate.py']);
    await until(job, 'running');
    const { slurm: place } = await status(job);
    await slurm.stopController();
    const entry = await status(job);
    expect(entry.state).toBe('running');
    expect(entry.reason).toMatch(
      /^Slurm does not answer: .*Unable to contact slurm controller.* It was last seen running\.$/,
    );
    const cancelled = await call(['cancel', job]);
    expect(cancelled.code).toBe(5);
    expect(cancelled.stderr).toContain('OOMTUNE_CLUSTER_REFUSED');
    expect((await status(job)).state).toBe('running');
    // its own file says how it ended, whoever does not answer
    script('open', '');
    expect(await until(job, 'succeeded')).toMatchObject({ exit_code: 0, slurm: place });
    slurm.startController();
    await waitFor(async () => {
      const { code, stdout, stderr } = await call(['submit', '--via', 'slurm', '--', PYTHON, 'quick.py']);
      if (code !== 0) return stderr; // it leaves no record behind
      return (await call(['wait', stdout.trim()])).code === 0 ? null : stdout;
    });
    const { stdout } = await call(['status', '--json']);
    const open = (JSON.parse(stdout) as { jobs: Entry[] }).jobs.filter(({ state }) => state === 'queued');
    expect(open).toEqual([]);
  });

  it('is followed by the daemon while no client is there, also by the next one, and is started by none', async () => {
    rmSync(join(work, 'open'), { force: true });
    expect((await call(['daemon', 'start', '--http-port', '0'])).code).toBe(0);
    const [job = ''] = await submit([], [PYTHON, 'gate.py']);
    await until(job, 'running');
    await call(['daemon', 'stop']);
    expect((await call(['daemon', 'start', '--http-port', '0'])).code).toBe(0);
    script('open', '');
    const url = (await call(['redis', 'url'])).stdout.trim();
    const key = `{oomtune}:job:${job}`;
    await waitFor(async () => {
      const state = await slurm.call('redis-cli', ['-s', url.replace('unix://', ''), 'HGET', key, 'state']);
      return state === 'succeeded' ? null : `the daemon sees it ${state}`; // read past our own clients, which would follow it
    });
    const launches = await slurm.call('redis-cli', ['-s', url.replace('unix://', ''), 'HGET', key, 'launches']);
    expect(launches).toBe('[]');
    await call(['daemon', 'stop']);
  });

  it('is ended from accounts, or after a while, where Slurm lists it no more', async () => {
    const [job = ''] = await submit([], [PYTHON, 'slow.py']);
    const { slurm: place } = await until(job, 'running');
    await slurm.call('scancel', [place.job]);
    await waitFor(async () => {
      const listed = await slurm.call('squeue', ['--noheader', '--states=all', '--format=%A']);
      return listed.split('\n').includes(place.job) ? 'it is still listed' : null;
    }, 400);
    for (const folder of folders())
      for (const name of ['ended', 'report.json']) rmSync(join(folder, '0', name), { force: true }); // as where its node was lost
    // there are no accounts without a database: a stand-in for sacct prints its lines
    const bin = join(work, 'accounts');
    mkdirSync(bin, { recursive: true });
    writeFileSync(
      join(bin, 'sacct'),
      `#!/bin/sh\necho '${place.job}|CANCELLED by 0|0:0|0:0|1795400000|node7|all|None'\n`,
    );
    chmodSync(join(bin, 'sacct'), 0o755);
    const unknown = await status(job);
    expect(unknown).toMatchObject({
      state: 'running',
      reason: expect.stringContaining(`does not list Slurm's job ${place.job}`),
    });
    const { stdout } = await call(['status', '--json', job], { PATH: `${bin}:${env().PATH}` });
    expect((JSON.parse(stdout) as { jobs: Entry[] }).jobs[0]).toMatchObject({
      state: 'cancelled',
      host: 'node7',
      exit_code: null,
    });
  });

  it('tunes the ranks of a step together, from outside of it', async () => {
    script(
      'ranks.py',
      [
        'import os, torch, torch.distributed as dist',
        'rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])',
        'dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + os.environ["PORT"], rank=rank, world_size=ranks)',
        'model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))',
        'data = torch.utils.data.TensorDataset(torch.randn(256, 64))',
        'sampler = torch.utils.data.DistributedSampler(data)',
        'optimizer = torch.optim.SGD(model.parameters(), 0.1)',
        'for (x,) in torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler):',
        '    optimizer.zero_grad()',
        '    model(x).square().mean().backward()',
        '    optimizer.step()',
      ].join('\n'),
    );
    const search = `${PROGRAM} find-batch --json --device cpu --budget 400MiB --max-batch 4 --`;
    const steps = [
      `${search} srun ${PYTHON} ranks.py > found.json`,
      `srun ${search.replace(' --json', '')} ${PYTHON} ranks.py 2> refused`,
      `srun -n1 ${PROGRAM} run -- true > alone 2>&1`, // of the allocation's two tasks
    ];
    const port = String(await freePort());
    const environment = { ...oomtune.env, PORT: port };
    const id = await slurm.call('sbatch', ['--parsable', '-n2', `--wrap=${steps.join('\n')}`], {
      cwd: work,
      env: environment,
    });
    const log = () => readFileSync(join(work, `slurm-${id}.out`), 'utf8');
    expect(await slurm.ended(id), log()).toMatchObject({ JobState: 'COMPLETED' });
    const found = JSON.parse(readFileSync(join(work, 'found.json'), 'utf8'));
    expect(found, log()).toMatchObject({ status: 'found', config: { micro_batch: 4, world_size: 2 } });
    expect(readFileSync(join(work, 'refused'), 'utf8')).toMatch(/srun starts oomtune 2 times.*find-batch … -- srun/s);
  });

  it('refuses what cannot be, and leaves nothing of it', async () => {
    const before = (await call(['status', '--json'])).stdout;
    const refusal = async (options: string[], more: NodeJS.ProcessEnv = {}) => {
      const { code, stderr } = await call(['submit', ...options, '--', PYTHON, 'quick.py'], more);
      return `${code} ${stderr.replaceAll('\n', ' ')}`;
    };
    expect(await refusal(['--via', 'slurm', '--partition', 'nowhere'])).toMatch(
      /^5 .*invalid partition specified: nowhere.*OOMTUNE_CLUSTER_REFUSED/,
    );
    expect(await refusal(['--via', 'slurm', '--sbatch', '--constraint=x y'])).toMatch(/^5 .*OOMTUNE_CLUSTER_REFUSED/);
    expect(await refusal(['--via', 'slurm', '--sbatch', '--output=x'])).toMatch(/^2 /);
    expect(await refusal(['--via', 'slurm', '--sbatch', 'rm -rf'])).toMatch(/^2 /);
    expect(await refusal(['--via', 'pbs'])).toMatch(/^2 /);
    expect(await refusal(['--partition', 'short'])).toMatch(/^2 .*--via slurm/);
    expect(await refusal(['--via', 'slurm', '--share'])).toMatch(/^2 /);
    const bin = join(work, 'without-slurm');
    mkdirSync(bin, { recursive: true });
    for (const name of ['sh', 'env']) copyFileSync(`/bin/${name}`, join(bin, name));
    writeFileSync(join(bin, 'node'), `#!/bin/sh\nexec '${process.execPath}' "$@"\n`, { mode: 0o755 });
    expect(await refusal(['--via', 'slurm'], { PATH: bin })).toMatch(
      /^5 .*s\w+ is not on PATH.*OOMTUNE_CLUSTER_MISSING/,
    );
    const ids = (text: string) => (JSON.parse(text) as { jobs: Entry[] }).jobs.map(({ job }) => job);
    expect(ids((await call(['status', '--json'])).stdout)).toEqual(ids(before));
    expect(PROGRAM).toContain('oomtune');
  });
});

describe.skipIf(reason !== null)('a job of Slurm that another one drives out', () => {
  const slurm = new Slurm({
    PreemptType: 'preempt/partition_prio',
    PreemptMode: 'REQUEUE',
    SchedulerType: 'sched/backfill',
    SchedulerParameters: 'bf_interval=1,sched_interval=1',
    PartitionName: [
      'all Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=30',
      'urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF',
    ],
  });
  const oomtune = new Oomtune();
  const env = { ...slurm.env, PATH: `${oomtune.env.PATH}:${slurm.env.PATH}` };
  beforeAll(() => slurm.start());
  afterAll(async () => {
    await oomtune.close();
    await slurm.close();
  });

  it.each([
    ['2', 'queued', /^was preempted, and waits/],
    ['0', 'failed', /^Slurm preempted .* does not start it again/],
  ])(
    'is told of as preempted, and is started again where that was asked for: --retries %s',
    async (retries, end, says) => {
      const program = `import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("started", flush=True)
time.sleep(600)`;
      const options = ['--via', 'slurm', '--device', 'cpu', '--exclusive', '--retries', retries];
      const { stdout, stderr } = await oomtune.call(['submit', ...options, '--', PYTHON, '-c', program], { env });
      const job = stdout.trim();
      expect(job, stderr).toMatch(/^j-/);
      await waitFor(async () =>
        (await oomtune.call(['logs', job], { env })).stdout.includes('started') ? null : 'starts',
      );
      await slurm.call('sbatch', ['--partition=urgent', '--exclusive', '--output=/dev/null', '--wrap=sleep 3']);
      let entry: Entry | undefined;
      await waitFor(async () => {
        [entry] = ((await oomtune.json(['status', job], { env })) as { jobs: Entry[] }).jobs;
        return entry?.state === end ? null : `is ${entry?.state}`;
      });
      expect(entry?.failure?.evidence ?? entry?.reason).toMatch(says);
      await oomtune.call(['cancel', job], { env });
    },
  );
});

/** A problem that goes away; null: it has. */
async function waitFor(problem: () => Promise<string | null>, tries = 150): Promise<void> {
  for (let made = 0; ; made++) {
    const said = await problem();
    if (said === null) return;
    if (made > tries) throw new Error(said);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
