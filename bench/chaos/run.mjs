// One run: jobs are submitted, faults strike, users steer; at the end `check.mjs` counts what is left. Started by chaos.mjs.
import { machine, options } from '../daemon/common.mjs';
import { check } from './check.mjs';
import { FAULTS } from './faults.mjs';
import { KINDS, plan, prelude } from './jobs.mjs';
import { Users } from './users.mjs';
import { draws, insist, sleep, World } from './world.mjs';

const [JOBS, SEED] = process.argv.slice(2).map(Number);
const LANES = 3;
/** Jobs that wait: those that are in Redis only are lost with it, and shall not be all. */
const BACKLOG = 30;
/** Seconds after the last fault in which everything has to have ended. */
const QUIET = 180;
/** Seconds that a fault may take: one that waits for a host to be silent takes 20. */
const FAULT = 120;

const random = draws(SEED);
const pick = (list) => list[Math.floor(random() * list.length)];
const say = (text) => process.stderr.write(`${text}\n`);
const fail = (why) => {
  say(`seed ${SEED}: the run ended by itself: ${why}`);
  process.exit(3);
};
process.on('uncaughtException', (error) => fail(error?.stack ?? error));
process.on('unhandledRejection', (error) => fail(error?.stack ?? error));
process.on('disconnect', () => fail('whoever started it is gone'));
process.on('exit', (code) => {
  if (code === 13) say(`seed ${SEED}: the run ended by itself: it waits for what nobody will ever tell`);
});
say(`seed ${SEED}: ${JOBS} jobs, ${Object.keys(FAULTS).length} kinds of faults`);

const world = new World(LANES);
await world.open();
const begun = Date.now();
const seconds = () => ((Date.now() - begun) / 1000).toFixed(0);
const live = () => insist(() => world.store.jobs.live());
const users = new Users(world);
let submitted = false;

const submitting = (async () => {
  for (const kind of plan(2 * JOBS, draws(SEED + 1))) {
    // What is lost with Redis's data is made up for
    if (world.jobs.size - world.gone.size >= JOBS) break;
    while ((await live()).length >= BACKLOG) await sleep(100);
    const command = ['/bin/bash', '-c', prelude(world.work) + kind.line];
    const wanted = options({ cwd: world.work, ...kind.options });
    const submission = { command, options: wanted, environment: process.env };
    const { losses } = world;
    const { job } = await insist(() => world.daemonApi.submitJob(world.store, submission));
    world.jobs.set(job, kind);
    if (losses !== world.losses || losses % 2 === 1) world.unsure.add(job);
    users.follow(job, kind);
  }
  submitted = true;
})();

const counts = {};
const failedFaults = {};
const striking = (async () => {
  const kinds = Object.keys(FAULTS);
  // Each kind once before any comes again, so that a short run has met them all
  const first = kinds.map((kind) => [random(), kind]).sort(([a], [b]) => a - b);
  for (let n = 0; !submitted || (await live()).length > 10; n += 1) {
    const kind = first[n]?.[1] ?? pick(kinds);
    if (process.env.CHAOS_TELL) say(`${new Date().toISOString().slice(11, 23)} ${kind}`);
    try {
      const late = sleep(FAULT * 1000).then(() => Promise.reject(new Error(`it takes longer than ${FAULT} s`)));
      late.catch(() => {});
      if ((await Promise.race([FAULTS[kind](world, { pick, random }), late])) !== false)
        counts[kind] = (counts[kind] ?? 0) + 1;
    } catch (error) {
      failedFaults[kind] = String(error.stack).slice(0, 300);
      say(`${kind}: ${error.stack}`);
    }
    if (n % 20 === 0) {
      const { jobs, gone } = world;
      const left = (await live()).length;
      say(`${seconds()} s: ${n} faults, ${left} jobs live of ${jobs.size}, ${gone.size} lost with Redis's data`);
    }
    await sleep(200 + random() * 800);
  }
})();

await Promise.all([submitting, striking]);
const quietFrom = Date.now();
while ((await live()).length > 0 && Date.now() - quietFrom < QUIET * 1000) await sleep(500);
const settled = (Date.now() - quietFrom) / 1000;
await sleep(5000);
await users.close();

const { states, starts, ...result } = await check(world, users.told);
const well = Object.values(result).every((list) => list.length === 0) && Object.keys(failedFaults).length === 0;
const text = JSON.stringify(
  {
    command: `node bench/chaos/chaos.mjs ${JOBS} ${SEED}`,
    ...machine(),
    seed: SEED,
    jobs: world.jobs.size,
    jobs_lost_with_the_data_of_redis: world.gone.size,
    kinds_of_jobs: KINDS.length,
    hosts: world.hosts.length,
    lanes: LANES * world.hosts.length,
    seconds: Math.round((Date.now() - begun) / 1000),
    seconds_to_settle: Math.round(settled),
    kinds_of_faults: Object.keys(counts).length,
    faults: Object.values(counts).reduce((sum, count) => sum + count, 0),
    faults_by_kind: counts,
    faults_that_could_not_strike: failedFaults,
    written_back_after_a_loss: world.writtenBack.length,
    seconds_until_written_back: Math.round(10 * Math.max(0, ...world.writtenBack)) / 10,
    waits: users.told.size,
    daemon_starts: world.hosts.reduce((sum, host) => sum + host.starts, 0),
    launches: starts,
    states,
    ...result,
    well,
  },
  null,
  2,
);
process.stdout.write(`${text}\n`);
if (process.env.CHAOS_KEEP === undefined || well) await world.close();
process.exit(well ? 0 : 1);
