import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob } from '../../src/daemon/index.js';
import { processesOf } from '../../src/runtime/marks.js';
import { supervisorsOf } from '../../src/runtime/traces.js';
import { redisStatus } from '../../src/store/index.js';
import { until } from '../store/home.js';
import { FIXTURES, pythonWithTorch } from '../worker/harness.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

/** Says how it was started and refuses to work beside another of its kind: the lock goes with the last process that has it. */
const ALONE = `exec 9>> alone.lock; flock --nonblock 9 || { echo both >> both.log; exit 1; }
echo "resume=\${OOMTUNE_RESUME:-0} launch=$OOMTUNE_LAUNCH [$*]" >> said.log; `;

const trainer = (line: string, changes = {}) =>
  host.submit(['/bin/bash', '-c', ALONE + line, 'train'], { retries: 2, resumeArg: '--resume', ...changes });

/** What a power cut leaves: nothing that ran, and records of another boot. */
async function powerCut(id: string): Promise<void> {
  const [redis, job] = [(await redisStatus()).pid as number, await host.job(id)];
  await host.kill();
  process.kill(redis, 'SIGKILL');
  await killAll();
  for (const { dir } of job.launches) {
    const file = join(dir, 'supervisor.json');
    const record = JSON.parse(readFileSync(file, 'utf8'));
    writeFileSync(file, JSON.stringify({ ...record, boot_id: '00000000-0000-4000-8000-000000000000' }));
  }
}

async function killAll(): Promise<void> {
  for (const pid of host.processes()) process.kill(pid, 'SIGKILL');
  await until(() => host.processes().length === 0);
}

test('after a power cut a job that had written a checkpoint is launched again and told to resume', async () => {
  await host.start();
  const id = await trainer('[ -e last.ckpt ] && { echo end >> ends.log; exit 0; }; echo 1 > last.ckpt; sleep 300');
  await until(() => host.lines('last.ckpt').length > 0);
  await host.state(id, 'running');
  await powerCut(id);
  await host.start();
  const job = await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toEqual(['resume=0 launch=1 []', 'resume=1 launch=2 [--resume]']);
  expect(job.launches.map(({ launch, purpose }) => [launch, purpose])).toEqual([
    [1, 'run'],
    [2, 'run'],
  ]);
  expect(job).toMatchObject({ exit_code: 0, failure: null });
  expect([host.lines('ends.log'), host.lines('both.log')]).toEqual([['end'], []]);
  expect(await host.leftOver()).toEqual([]);
});

test('one that had got nowhere begins anew', async () => {
  await host.start();
  const id = await trainer('[ "$OOMTUNE_LAUNCH" = 2 ] && exit 0; sleep 300');
  await host.state(id, 'running');
  await until(() => host.lines('said.log').length === 1);
  await host.kill();
  await killAll();
  await host.start();
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toEqual(['resume=0 launch=1 []', 'resume=0 launch=2 []']);
});

test('--retries bounds it over all daemons, and what is left to say is said', async () => {
  await host.start();
  const never = await trainer('sleep 300', { retries: 0 });
  await host.state(never, 'running');
  await until(() => host.lines('said.log').length === 1);
  await killAll();
  expect(await host.state(never, 'failed')).toMatchObject({
    launches: [{ launch: 1 }],
    exit_code: null,
    failure: { class: 'killed', evidence: expect.stringContaining('the machine went down') },
  });
  const once = await trainer('sleep 300', { retries: 1 });
  for (const launch of [1, 2]) {
    await until(() => host.lines('said.log').length === 1 + launch);
    await host.state(once, 'running');
    await host.kill();
    await killAll();
    await host.start();
  }
  expect((await host.state(once, 'failed')).launches).toHaveLength(2);
  expect(host.lines('said.log')).toHaveLength(3);
  expect(await host.leftOver()).toEqual([]);
});

test('a supervisor that is killed alone: what is left of the job is ended before it is launched again', async () => {
  await host.start();
  // The grandchild keeps the lock, is deaf to TERM and has left the session
  const id = await trainer(
    '[ "$OOMTUNE_LAUNCH" = 2 ] && exit 0; setsid bash -c \'trap "" TERM; sleep 300\' & sleep 300',
  );
  await host.state(id, 'running');
  await until(() => host.processes().length >= 5 && host.lines('said.log').length === 1);
  const { launches } = await host.job(id);
  const { pid } = JSON.parse(readFileSync(join(launches[0]?.dir as string, 'supervisor.json'), 'utf8'));
  process.kill(pid, 'SIGKILL');
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toHaveLength(2);
  expect(host.lines('both.log')).toEqual([]);
  expect(await host.leftOver()).toEqual([]);
});

test('a launch that was recorded and never made counts as none, and what went before it is resumed', async () => {
  await host.start();
  const id = await trainer('[ -e last.ckpt ] && exit 0; echo 1 > last.ckpt; sleep 300', { retries: 1 });
  await host.state(id, 'running');
  await until(() => host.lines('last.ckpt').length > 0);
  await host.kill();
  await killAll();
  // The next daemon is killed in the moment between the record of the second launch and the launch
  const store = await host.store();
  const job = await host.job(id);
  const [first] = job.launches;
  if (first === undefined) throw new Error('it was launched');
  writeFileSync(join(first.dir, 'progress'), '');
  mkdirSync(first.dir.replace(/1$/, '2')); // made before it is recorded
  await store.jobs.patch(id, { launches: [first, { ...first, launch: 2, dir: first.dir.replace(/1$/, '2') }] });
  await host.start();
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toEqual(['resume=0 launch=1 []', 'resume=1 launch=3 [--resume]']);
});

test('a container that ends takes its jobs along: the next one launches them again', async () => {
  const container = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child=SIGKILL'];
  await host.start({}, {}, container);
  const id = await trainer('[ "$OOMTUNE_LAUNCH" = 2 ] && exit 0; sleep 300');
  await host.state(id, 'running');
  await until(() => host.lines('said.log').length === 1);
  await host.kill();
  await host.start({}, {}, container);
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toEqual(['resume=0 launch=1 []', 'resume=0 launch=2 []']);
  expect(host.lines('both.log')).toEqual([]);
});

test('a run in another container that lives on is not taken for lost', async () => {
  // The container outlives its daemon; the next daemon runs outside of it and knows the run by other pids, or not at all
  await host.start({}, {}, [
    ...['unshare', '--pid', '--fork', '--mount-proc', '--kill-child=SIGKILL'],
    ...['sh', '-c', 'echo daemon >> /dev/null; "$@" & wait; sleep 60', 'sh'],
  ]);
  const inside = host.daemon;
  const id = await trainer('sleep 15; echo end >> ends.log');
  await host.state(id, 'running');
  const pid = daemonUnder(inside?.pid as number);
  process.kill(pid, 'SIGKILL');
  await sleep(500);
  await host.start();
  await sleep(2000);
  expect(await host.job(id)).toMatchObject({ state: 'running', launches: [{ launch: 1 }] });
  await host.state(id, 'succeeded', 40);
  expect([host.lines('said.log').length, host.lines('ends.log'), host.lines('both.log')]).toEqual([1, ['end'], []]);
  await host.kill(inside as NonNullable<typeof inside>);
});

/** The Node process below `pid`. */
function daemonUnder(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);
  const node = children.find((child) => readFileSync(`/proc/${child}/cmdline`, 'latin1').startsWith(process.execPath));
  return node ?? daemonUnder(children[0] as number);
}

test('a search that lost its process measures the same size again, and believes nothing of the lost one', async () => {
  copyFileSync(join(FIXTURES, 'tiny.py'), join(host.work, 'tiny.py'));
  await host.start();
  const options = { budget: '38MiB', preset: 'auto', tune: true, timeoutSeconds: 60, retries: 2, effectiveBatch: 512 };
  const id = await host.submit([pythonWithTorch(), 'tiny.py'], options, { ...process.env, OMP_NUM_THREADS: '1' });
  await until(async () => (await host.job(id)).launches.length === 1 && host.processes().length >= 2, 60);
  await killAll();
  const job = await host.state(id, 'succeeded', 100);
  expect(job.config?.effective_batch).toBe(512);
  expect(job.journal.length).toBeGreaterThan(1);
  expect(job.journal.every(({ outcome }) => outcome === 'fit' || outcome === 'device_oom')).toBe(true);
});

test('a removed launch folder hides no run: it is found, not launched again, and its end is known', async () => {
  await host.start();
  const ends = await trainer('sleep 4; echo end >> ends.log; exit 5', { retries: 0 });
  await host.state(ends, 'running');
  await until(() => host.lines('said.log').length === 1);
  await host.kill();
  rmSync(join(host.home, 'runs', ends), { recursive: true });
  await host.start();
  const job = await host.state(ends, 'failed');
  expect([job.exit_code, job.launches.length, host.lines('said.log').length]).toEqual([5, 1, 1]);
  expect([host.lines('ends.log'), host.lines('both.log')]).toEqual([['end'], []]);

  const endless = await trainer('sleep 300', { retries: 0 });
  await host.state(endless, 'running');
  await until(() => host.lines('said.log').length === 2);
  await host.kill();
  rmSync(join(host.home, 'runs', endless), { recursive: true });
  await host.start();
  await sleep(1000);
  await cancelJob(await host.store(), endless);
  await host.state(endless, 'cancelled');
  expect([host.lines('said.log').length, host.lines('both.log')]).toEqual([2, []]);
  expect(await host.leftOver()).toEqual([]);
});

test('a launch whose folder and processes are gone counts as lost, not as one that was never made', async () => {
  await host.start();
  const id = await trainer('sleep 300', { retries: 0 });
  await host.state(id, 'running');
  await until(() => host.lines('said.log').length === 1);
  await host.kill();
  await killAll();
  rmSync(join(host.home, 'runs', id), { recursive: true });
  await host.start();
  expect(await host.state(id, 'failed')).toMatchObject({
    exit_code: null,
    failure: { class: 'killed', evidence: expect.stringContaining('was removed') },
  });
  expect(host.lines('said.log')).toHaveLength(1);
});

/** Without the kernel's control groups: where they are mounted there is an empty folder. */
const UNGROUPED = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', 'sh'];

test('without a control group, too, nothing of a job outlives its killed supervisor to run beside the next launch', async () => {
  await host.start({}, {}, UNGROUPED);
  // Keeps the lock, is deaf to TERM, has left the session and forgotten its environment
  const hidden = 'env -i setsid bash -c \'trap "" TERM; sleep 300\' &';
  const id = await trainer(`[ "$OOMTUNE_LAUNCH" = 2 ] && exit 0; ${hidden} sleep 300`);
  await host.state(id, 'running');
  await until(() => host.lines('said.log').length === 1);
  const { launches } = await host.job(id);
  const record = JSON.parse(readFileSync(join(launches[0]?.dir as string, 'supervisor.json'), 'utf8'));
  expect(record.cgroup).toBeNull();
  await sleep(300); // until that child has got so far
  process.kill(record.pid, 'SIGKILL');
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toHaveLength(2);
  expect(host.lines('both.log')).toEqual([]);
  expect(await host.leftOver()).toEqual([]);
});

test('supervisor and keeper killed at once without a control group: what has no environment and no session is found', async () => {
  await host.start({}, {}, UNGROUPED);
  const hidden = 'env -i setsid bash -c \'trap "" TERM; sleep 300\' &';
  const id = await trainer(`[ "$OOMTUNE_LAUNCH" = 2 ] && exit 0; ${hidden} sleep 300`);
  await host.state(id, 'running');
  await until(() => host.lines('said.log').length === 1);
  const dir = (await host.job(id)).launches[0]?.dir as string;
  expect(JSON.parse(readFileSync(join(dir, 'supervisor.json'), 'utf8')).cgroup).toBeNull();
  await sleep(300); // until that child has got so far
  const both = supervisorsOf(dir);
  expect(both).toHaveLength(2);
  for (const pid of both) process.kill(pid, 'SIGSTOP'); // neither hears of the other's end
  for (const pid of both) process.kill(pid, 'SIGKILL');
  await host.state(id, 'succeeded');
  expect(host.lines('said.log')).toHaveLength(2);
  expect(host.lines('both.log')).toEqual([]);
  expect(processesOf(dir)).toEqual([]);
  expect(await host.leftOver()).toEqual([]);
});

test('a supervisor that is killed after its job has ended well does not make it fail', async () => {
  await host.start();
  const id = await trainer('setsid sleep 300 & exit 0', { retries: 0 });
  await until(async () => (await host.job(id)).launches.length === 1);
  const dir = (await host.job(id)).launches[0]?.dir as string;
  await until(() => existsSync(join(dir, 'main.json')));
  process.kill(JSON.parse(readFileSync(join(dir, 'supervisor.json'), 'utf8')).pid, 'SIGKILL');
  expect(await host.state(id, 'succeeded')).toMatchObject({ exit_code: 0, failure: null });
  expect(host.lines('said.log')).toHaveLength(1);
  expect(await host.leftOver()).toEqual([]);
});
