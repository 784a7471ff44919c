// From submit to the process's exec, and no-op jobs a second beside task-spooler in the same run.
//   node bench/daemon/dispatch.mjs [samples] [jobs] > bench/results/daemon-dispatch.json
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  cancelJob,
  daemonStatus,
  home,
  machine,
  openStore,
  options,
  quantile,
  ROOT,
  rss,
  sleep,
  startDaemon,
  stopDaemon,
  submitJob,
  tidy,
} from './common.mjs';

const SAMPLES = Number(process.argv[2] ?? 200);
const JOBS = Number(process.argv[3] ?? 400);
const LANES = 4;
const say = (text) => process.stderr.write(`${text}\n`);
const now = () => performance.timeOrigin + performance.now();

const store = await openStore({ onOutage: () => {} });
await startDaemon(store, { cpuLanes: LANES });
const submit = (command, changes) => submitJob(store, { command, options: options(changes), environment: process.env });
const drained = async () => {
  while ((await store.jobs.counts()).live > 0) await sleep(5);
};
/** Its argv[0] writes the time as the first thing that it does: /bin/date is exec'ed directly, no shell in between. */
const stamp = ['/bin/date', '+%s.%N'];

for (let n = 0; n < 10; n += 1) await submit(['/bin/true']);
await drained();

say(`dispatch, ${SAMPLES} jobs one after the other`);
const library = [];
const supervisor = [];
const program = [];
for (let n = 0; n < SAMPLES; n += 1) {
  const before = now();
  const { job } = await submit(stamp);
  await drained();
  const record = await store.jobs.get(job);
  library.push(Number(readFileSync(join(record.launches[0].dir, 'log'), 'utf8')) * 1000 - before);
  supervisor.push(Date.parse(record.started_at) - before);
}
for (let n = 0; n < Math.ceil(SAMPLES / 4); n += 1) {
  const before = now();
  const job = execFileSync(
    process.execPath,
    [
      join(ROOT, 'bin/oomtune.js'),
      'submit',
      '--device',
      'cpu',
      '--budget',
      '64MiB',
      '--preset',
      'none',
      '--',
      ...stamp,
    ],
    {
      encoding: 'utf8',
      cwd: home,
    },
  ).trim();
  await drained();
  const record = await store.jobs.get(job);
  program.push(Number(readFileSync(join(record.launches[0].dir, 'log'), 'utf8')) * 1000 - before);
}

/** From the wish to the record: the job is gone then, with all its processes. */
const cancels = [];
for (let n = 0; n < Math.ceil(SAMPLES / 4); n += 1) {
  const { job } = await submit(['/bin/sleep', '600']);
  while ((await store.jobs.get(job)).state !== 'running') await sleep(5);
  const before = now();
  await cancelJob(store, job);
  while ((await store.jobs.get(job)).state !== 'cancelled') await sleep(2);
  cancels.push(now() - before);
}

async function ours(jobs) {
  const pid = (await daemonStatus(store)).pid;
  const cpu = () =>
    readFileSync(`/proc/${pid}/stat`, 'latin1')
      .split(') ')
      .at(-1)
      .split(' ')
      .slice(11, 13)
      .reduce((a, b) => a + Number(b) / 100, 0);
  const cpuBefore = cpu();
  const rssBefore = rss(pid);
  const before = now();
  for (let n = 0; n < jobs; n += 1) await submit(['/bin/true']);
  const queued = now();
  await drained();
  const ended = now();
  return {
    jobs_per_s: round(jobs / ((ended - before) / 1000)),
    submit_ms: round((queued - before) / jobs),
    daemon_cpu_ms_per_job: round(((cpu() - cpuBefore) / jobs) * 1000),
    daemon_rss_kib: { before: rssBefore, after: rss(pid) },
  };
}

/** task-spooler with as many slots; its server is a process of its own, on a socket of its own. */
function spooler(jobs) {
  const env = { PATH: process.env.PATH, TS_SOCKET: join(home, 'tsp.sock'), TMPDIR: home, TS_MAXCONN: '1000' };
  const tsp = (...args) => execFileSync('tsp', args, { env, encoding: 'utf8' });
  tsp('-S', String(LANES));
  const stamped = [];
  for (let n = 0; n < Math.min(SAMPLES, 100); n += 1) {
    const before = now();
    const id = tsp(...stamp).trim();
    tsp('-w', id);
    const out = tsp('-o', id).trim();
    stamped.push(Number(readFileSync(out, 'utf8')) * 1000 - before);
  }
  tsp('-C');
  const before = now();
  let last = '';
  for (let n = 0; n < jobs; n += 1) last = tsp('/bin/true').trim();
  tsp('-w', last);
  while (/running|queued/.test(tsp())) {}
  const seconds = (now() - before) / 1000;
  tsp('-K');
  return { jobs_per_s: round(jobs / seconds), dispatch_ms: spread(stamped) };
}

const round = (value) => Math.round(value * 10) / 10;
const spread = (values) => ({
  median: round(quantile(values, 0.5)),
  p99: round(quantile(values, 0.99)),
  samples: values.length,
});

say(`throughput, ${JOBS} no-op jobs, then as many by task-spooler`);
const rounds = [];
for (let n = 0; n < 3; n += 1) rounds.push({ oomtune: await ours(JOBS), tsp: spooler(JOBS) });
const rates = (who) =>
  quantile(
    rounds.map((one) => one[who].jobs_per_s),
    0.5,
  );
const result = {
  command: `node bench/daemon/dispatch.mjs ${SAMPLES} ${JOBS}`,
  ...machine(),
  lanes: LANES,
  dispatch_ms: {
    library_submit_to_exec: spread(library),
    of_that_until_the_launch_is_recorded: spread(supervisor),
    program_submit_to_exec: spread(program),
    tsp_submit_to_exec: rounds[0].tsp.dispatch_ms,
  },
  cancel_running_ms: spread(cancels),
  noop_jobs_per_s: {
    oomtune: rates('oomtune'),
    tsp: rates('tsp'),
    times_slower: round(rates('tsp') / rates('oomtune')),
  },
  rounds,
};
process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
await stopDaemon(store);
await tidy(store);
process.exit(0);
