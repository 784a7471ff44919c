// What is left at the end, and whether each job ended as it had to.
import { insist, sleep } from './world.mjs';

const ENDED = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

/** Seconds in which BullMQ finds entries that were taken and that nobody has locked any more: it looks every 60 s, and acts on two looks. */
const STALLED = 150;

const entries = async (world) =>
  (await insist(() => world.admin('KEYS', '{oomtune}:*:*'))).filter((key) =>
    /:(active|wait|paused|prioritized|delayed|failed|completed|j-\w+-\d+(:lock)?)$/.test(key),
  );

async function untilEmpty(look) {
  for (const until = Date.now() + STALLED * 1000; ; await sleep(1000)) {
    const found = await look();
    if (found.length === 0 || Date.now() > until) return found;
  }
}

/** `told`: what those who waited for a job were told. */
export async function check(world, told) {
  const starts = new Map();
  for (const line of world.lines('starts')) starts.set(line.split(' ')[0], (starts.get(line.split(' ')[0]) ?? 0) + 1);
  const states = {};
  const result = { lost: [], doubled: [], promised_twice: [], orphaned: [], leased: [], unexpected: [], queued: [] };
  const { lost, doubled, unexpected } = result;
  for (const line of world.lines('both')) if (!world.given.has(line.split(' ')[0])) doubled.push(`${line} at a time`);
  result.promised_twice = world.lines('promised-twice');
  for (const [id, kind] of world.jobs) {
    const name = `${id} (${kind.name})`;
    const job = await insist(() => world.store.jobs.get(id));
    const ran = starts.get(id) ?? 0;
    const wasLost = world.gone.has(id) || (world.unsure.has(id) && ran === 0);
    const state = job?.state ?? world.ended.get(id) ?? (wasLost ? 'lost with the data' : 'missing');
    states[`${kind.name}: ${state}`] = (states[`${kind.name}: ${state}`] ?? 0) + 1;

    const waiter = told.get(id);
    const known = waiter === state || (waiter === 'OOMTUNE_NO_SUCH_JOB' && job === null);
    if (waiter !== undefined && !known && waiter !== 'Error: not told')
      unexpected.push(`${name} is ${state}, but who waited was told ${waiter}`);
    if (world.sealed.has(id) && ran !== world.sealed.get(id))
      doubled.push(`${name} had ended, or was lost, after ${world.sealed.get(id)} starts: now ${ran}`);
    if (world.gone.has(id)) {
      if (job !== null) unexpected.push(`${name} was lost with Redis's data, and is ${state}`);
      continue;
    }
    if (state === 'lost with the data') continue;
    if (!ENDED.includes(state)) {
      lost.push(`${name} is ${state}: ${job?.reason ?? ''}`);
      continue;
    }
    const again = (kind.options?.retries ?? 0) > 0;
    const struck = world.hit.has(id) || (world.lost.has(id) && !again);
    const asItHadTo = kind.state === null || state === kind.state;
    if (!struck && !asItHadTo)
      unexpected.push(`${name} ended as ${state}: ${JSON.stringify(job?.failure).slice(0, 300)}`);
    if (!struck && asItHadTo && kind.code !== undefined && job !== null && job.exit_code !== kind.code)
      unexpected.push(`${name} ended with ${job.exit_code}`);
    if (!struck && state === 'succeeded' && ran === 0) unexpected.push(`${name} succeeded, and was never started`);
    if (ran > 1 && !again && !world.given.has(id)) doubled.push(`${name} started ${ran} times`);
  }
  unexpected.push(...world.wrong);
  result.orphaned = world.processes().map(({ pid, dir, role, state }) => `${role} ${pid} (${state}) of ${dir}`);
  result.leased = (await insist(() => world.store.leasing.list())).map(({ owner }) => owner);
  result.queued = await untilEmpty(() => entries(world));
  return { ...result, states, starts: [...starts.values()].reduce((sum, count) => sum + count, 0) };
}
