// Random faults against many short jobs; what is left at the end is counted. Needs root, for a disk that can be filled.
//   node bench/chaos/chaos.mjs [jobs] [seed] > bench/results/chaos.json
import { machine, options } from '../daemon/common.mjs';
import { FAULTS } from './faults.mjs';
import { KINDS, plan, prelude } from './jobs.mjs';
import { draws, insist, sleep, World } from './world.mjs';

const JOBS = Number(process.argv[2] ?? 1000);
const SEED = Number(process.argv[3] ?? Date.now() % 1e9);
const LANES = 8;
/** Seconds after the last fault in which everything has to have ended. */
const QUIET = 180;
const ENDED = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

const random = draws(SEED);
const pick = (list) => list[Math.floor(random() * list.length)];
const say = (text) => process.stderr.write(`${text}\n`);
say(`seed ${SEED}: ${JOBS} jobs, ${Object.keys(FAULTS).length} kinds of faults`);

const world = new World(LANES);
await world.open();
const { submitJob, cancelJob } = world.daemonApi;
const begun = Date.now();
let submitted = false;

const submitting = (async () => {
  for (const kind of plan(JOBS, draws(SEED + 1))) {
    const command = ['/bin/bash', '-c', prelude(world.work) + kind.line];
    const wanted = options({ cwd: world.work, ...kind.options });
    const { job } = await insist(() => submitJob(world.store, { command, options: wanted, environment: process.env }));
    world.jobs.set(job, kind);
  }
  submitted = true;
})();

const live = () => insist(() => world.store.jobs.live());

/** Those that are to be cancelled are, some in their queue, some once they run. */
const cancelling = (async () => {
  const told = new Set();
  for (let left = JOBS; !submitted || left > 0; await sleep(500)) {
    const jobs = await live();
    left = jobs.length;
    for (const { job, state } of jobs) {
      if (world.jobs.get(job)?.name !== 'cancelled' || told.has(job)) continue;
      if (state !== 'running' && job.charCodeAt(job.length - 1) % 2 === 0) continue;
      told.add(job);
      await insist(() => cancelJob(world.store, job));
    }
  }
})();

const counts = {};
const failedFaults = {};
const striking = (async () => {
  const kinds = Object.keys(FAULTS);
  for (let n = 0; !submitted || (await live()).length > 10; n += 1) {
    // Each kind once before any comes again, so that a short run has met them all
    const kind = n < kinds.length ? kinds[n] : pick(kinds);
    if (process.env.CHAOS_TELL) say(kind);
    try {
      if ((await FAULTS[kind](world, { pick, random })) !== false) counts[kind] = (counts[kind] ?? 0) + 1;
    } catch (error) {
      failedFaults[kind] = String(error.message).slice(0, 120); // the last one still had Redis down
    }
    if (n % 20 === 0)
      say(
        `${((Date.now() - begun) / 1000).toFixed(0)} s: ${n} faults, ${(await live()).length} jobs live of ${world.jobs.size}`,
      );
    await sleep(200 + random() * 800);
  }
})();

await Promise.all([submitting, striking]);
const quietFrom = Date.now();
await Promise.race([cancelling, sleep(QUIET * 1000)]);
while ((await live()).length > 0 && Date.now() - quietFrom < QUIET * 1000) await sleep(500);
const settled = (Date.now() - quietFrom) / 1000;
await sleep(5000);

const starts = new Map();
for (const line of world.lines('starts')) starts.set(line.split(' ')[0], (starts.get(line.split(' ')[0]) ?? 0) + 1);
const result = { lost: [], doubled: world.lines('both'), orphaned: [], leased: [], unexpected: [] };
const states = {};
for (const [id, kind] of world.jobs) {
  const job = await insist(() => world.store.jobs.get(id));
  const state = job?.state ?? 'missing';
  states[`${kind.name}: ${state}`] = (states[`${kind.name}: ${state}`] ?? 0) + 1;
  if (!ENDED.includes(state)) result.lost.push(`${id} (${kind.name}) is ${state}: ${job?.reason ?? ''}`);
  const struck = world.hit.has(id) || (world.lost.has(id) && !(kind.options?.retries > 0));
  const as = kind.state === null || state === kind.state;
  if (ENDED.includes(state) && !struck && !as)
    result.unexpected.push(`${id} (${kind.name}) ended as ${state}: ${JSON.stringify(job.failure).slice(0, 300)}`);
  if (as && kind.code !== undefined && !struck && job.exit_code !== kind.code)
    result.unexpected.push(`${id} (${kind.name}) ended with ${job.exit_code}`);
  if ((starts.get(id) ?? 0) > 1 && !(kind.options?.retries > 0))
    result.doubled.push(`${id} (${kind.name}) started ${starts.get(id)} times`);
}
result.orphaned = world.processes().map(({ pid, dir, role }) => `${role} ${pid} of ${dir}`);
result.leased = (await insist(() => world.store.leases())).map(({ owner }) => owner);
result.queued = (await insist(() => world.admin('KEYS', '{oomtune}:c*:*'))).filter((key) =>
  /:(active|wait|prioritized|delayed|failed|completed)$/.test(key),
);

const well = Object.values(result).every((list) => list.length === 0);
process.stdout.write(
  `${JSON.stringify(
    {
      command: `node bench/chaos/chaos.mjs ${JOBS} ${SEED}`,
      ...machine(),
      seed: SEED,
      jobs: world.jobs.size,
      kinds_of_jobs: KINDS.length,
      lanes: LANES,
      seconds: Math.round((Date.now() - begun) / 1000),
      seconds_to_settle: Math.round(settled),
      kinds_of_faults: Object.keys(counts).length,
      faults: Object.values(counts).reduce((sum, count) => sum + count, 0),
      faults_by_kind: counts,
      faults_that_could_not_strike: failedFaults,
      daemon_starts: world.daemonStarts,
      launches: [...starts.values()].reduce((sum, count) => sum + count, 0),
      states,
      ...result,
      well,
    },
    null,
    2,
  )}\n`,
);
if (process.env.CHAOS_KEEP === undefined || well) await world.close();
process.exit(well ? 0 : 1);
