// 1,000 jobs of mixed outcome on 4 CPU lanes, with the daemon killed (SIGKILL) every 30 s.
//   node bench/daemon/load.mjs [jobs] [seconds between kills] > bench/results/daemon-load.json
import {
  cancelJob,
  daemonStatus,
  home,
  machine,
  openStore,
  options,
  orphans,
  redisStatus,
  rss,
  sleep,
  startDaemon,
  submitJob,
  tidy,
} from './common.mjs';

const JOBS = Number(process.argv[2] ?? 1000);
const KILL_SECONDS = Number(process.argv[3] ?? 30);
const say = (text) => process.stderr.write(`${text}\n`);

/** What a job does, and the state that it has to end in. Counts its starts in a file. */
const started = `echo $OOMTUNE_JOB_ID >> ${home}/starts`;
const KINDS = {
  ends: { share: 0.4, line: 'exit 0', state: 'succeeded' },
  works: { share: 0.15, line: 'sleep 0.5; exit 0', state: 'succeeded' },
  crashes: { share: 0.1, line: 'exit 3', state: 'failed', failure: 'user_error' },
  segfaults: { share: 0.05, line: 'kill -SEGV $$', state: 'failed' },
  oom: {
    share: 0.1,
    line: "exec /usr/bin/python3 -c 'b = [bytearray(1 << 20) for _ in range(500)]'",
    state: 'failed',
    failure: 'device_oom',
  },
  hangs: { share: 0.1, line: '(setsid sleep 600 &) ; sleep 600', state: 'timeout', options: { timeoutSeconds: 2 } },
  cancelled: { share: 0.1, line: 'setsid sleep 600 & sleep 600', state: 'cancelled' },
};

const store = await openStore({ onOutage: () => {} });
await startDaemon(store, { cpuLanes: 4 });
// The start that memory is compared with: a daemon that has seen jobs of each kind, and so has loaded what they need (to
// diagnose the first out-of-memory error alone reads all signatures)
for (const { line, options: more, state } of Object.values(KINDS)) {
  if (state === 'cancelled') continue;
  for (let n = 0; n < 10; n += 1)
    await submitJob(store, { command: ['/bin/sh', '-c', line], options: options(more), environment: process.env });
}
while ((await store.jobs.counts()).live > 0) await sleep(100);
const redisBefore = (await redisStatus()).used_bytes;
const rssBefore = rss((await daemonStatus(store)).pid);

const begun = Date.now();
const jobs = new Map();
for (const [kind, { share, line, options: more }] of Object.entries(KINDS)) {
  for (let n = 0; n < Math.round(JOBS * share); n += 1) jobs.set({ kind, line, more, order: Math.random() }, null);
}
const plan = [...jobs.keys()].sort((a, b) => a.order - b.order);
const ids = new Map();
for (const job of plan) {
  const record = await submitJob(store, {
    command: ['/bin/sh', '-c', `${started}; ${job.line}`],
    options: options(job.more),
    environment: process.env,
  });
  ids.set(record.job, job.kind);
}
say(`${ids.size} jobs submitted in ${((Date.now() - begun) / 1000).toFixed(1)} s`);

let kills = 0;
let done = false;
const killer = (async () => {
  for (;;) {
    for (let waited = 0; waited < KILL_SECONDS && !done; waited += 0.25) await sleep(250);
    if (done) return;
    const { pid } = await daemonStatus(store);
    if (pid !== null) process.kill(pid, 'SIGKILL');
    kills += 1;
    await sleep(100);
    await startDaemon(store, { cpuLanes: 4 });
    say(`killed ${pid}; ${(await store.jobs.counts()).live} jobs to go`);
  }
})();

// Half of those that are to be cancelled are cancelled in their queue, half once they run
const toCancel = [...ids].filter(([, kind]) => kind === 'cancelled').map(([id]) => id);
for (const id of toCancel.filter((_, at) => at % 2 === 0)) await cancelJob(store, id);
const whenRunning = new Set(toCancel.filter((_, at) => at % 2 === 1));
while ((await store.jobs.counts()).live > 0) {
  for (const job of await store.jobs.live()) {
    if (whenRunning.has(job.job) && job.state === 'running') {
      whenRunning.delete(job.job);
      await cancelJob(store, job.job);
    }
  }
  await sleep(500);
}
const seconds = (Date.now() - begun) / 1000;
done = true;
await killer;
await sleep(2000);

const { readFileSync } = await import('node:fs');
const starts = new Map();
for (const id of readFileSync(`${home}/starts`, 'utf8').trim().split('\n')) starts.set(id, (starts.get(id) ?? 0) + 1);
const wrong = [];
const states = {};
for (const [id, kind] of ids) {
  const job = await store.jobs.get(id);
  const state = job?.state ?? 'lost';
  states[`${kind}: ${state}`] = (states[`${kind}: ${state}`] ?? 0) + 1;
  const expected = KINDS[kind];
  if (state !== expected.state)
    wrong.push(`${id} (${kind}) ended as ${state}: ${job?.reason ?? ''} ${JSON.stringify(job?.failure ?? null)}`);
  else if (expected.failure && job.failure?.class !== expected.failure)
    wrong.push(`${id} (${kind}) failed as ${job.failure?.class}`);
  const count = starts.get(id) ?? 0;
  if (count > 1 || (count === 0 && kind !== 'cancelled')) wrong.push(`${id} (${kind}) started ${count} times`);
}
const { redis } = store.connection;
const queued = [];
for (const key of await redis.keys('{oomtune}:c*:*'))
  if (/:(active|wait|prioritized|delayed|failed|completed)$/.test(key)) queued.push(key);
await redis.call('MEMORY', 'PURGE').catch(() => {});
const result = {
  command: `node bench/daemon/load.mjs ${JOBS} ${KILL_SECONDS}`,
  ...machine(),
  jobs: ids.size,
  lanes: 4,
  seconds: Math.round(seconds),
  daemon_kills: kills,
  states,
  wrong,
  orphans: orphans().length,
  leases: (await store.leasing.list()).length,
  queue_keys: queued,
  daemon_rss_kib: { before: rssBefore, after: rss((await daemonStatus(store)).pid) },
  redis_bytes: { before: redisBefore, after: (await redisStatus()).used_bytes },
};
process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
await tidy(store);
process.exit(wrong.length === 0 && result.orphans === 0 && result.leases === 0 && queued.length === 0 ? 0 : 1);
