// Redis loses its data. Who knows what was lost: all that nobody writes is read right before, and compared afterwards.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { kill } from './host.mjs';
import { insist, sleep } from './world.mjs';

const ENDED = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];
/** Seconds in which what runs has to be written back (docs/guides/deploy.md). */
const BACK = 30;
/** Copies of Redis's files since it was emptied last, each with what stood there. */
const copies = [];

/** All records, those included whose submission has not returned yet. */
const READ = `
local all = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if redis.call('TYPE', key).ok == 'hash' then
    all[#all + 1] = {key, unpack(redis.call('HMGET', key, 'state', 'launches', 'claim_host'))}
  end
end
`;

/** By job: its state, whether it was launched, whether a host had taken it. */
function read(rows) {
  const found = rows.map(([key, state, launches, claimed]) => {
    const was = { state, launched: (launches ?? '[]') !== '[]', claimed: Boolean(claimed) };
    return [key.split(':').at(-1), was];
  });
  return new Map(found.filter(([id]) => !id.startsWith('j-evil')));
}

const records = (world) => world.store.keys.job('*');

/** FLUSHALL by somebody else; what stood there is read in the same step. */
async function flush(world) {
  return read(await world.admin('EVAL', `${READ} redis.call('FLUSHALL') return all`, '0', records(world)));
}

/** Has Redis begin anew with other files: while nobody can write, they are changed under it, and it is killed. */
async function restart(world, change) {
  await world.admin('CLIENT', 'PAUSE', '20000', 'WRITE');
  const rows = await world.admin('EVAL_RO', `${READ} return all`, '0', records(world));
  const pid = await redisPid(world);
  kill(pid, 'SIGSTOP');
  change(files(world));
  kill(pid, 'SIGKILL');
  return read(rows);
}

export const redisPid = async (world) => Number(/process_id:(\d+)/.exec(await world.admin('INFO', 'server'))?.[1]);
const files = (world) => join(world.home, 'redis', 'appendonlydir');

/** A copy of Redis's files as they are now, and what stands there. */
async function copy(world) {
  await world.admin('CLIENT', 'PAUSE', '20000', 'WRITE');
  try {
    const rows = await world.admin('EVAL_RO', `${READ} return all`, '0', records(world));
    const pid = await redisPid(world);
    const folder = mkdtempSync(join(world.work, 'redis-'));
    kill(pid, 'SIGSTOP');
    cpSync(files(world), folder, { recursive: true });
    kill(pid, 'SIGCONT');
    copies.push({ folder, before: read(rows) });
    if (copies.length > 4) forget(copies.shift());
  } finally {
    await world.admin('CLIENT', 'UNPAUSE');
  }
}

const forget = ({ folder }) => rmSync(folder, { recursive: true, force: true });

/** `after`: what stands in Redis now, by job. Notes what is gone, and waits until what was launched is back. */
async function account(world, before, after) {
  const back = [];
  for (const [id, was] of before) {
    const starts = world.startsOf(id);
    if (ENDED.includes(was.state)) {
      world.ended.set(id, was.state);
      // What was cancelled in its queue, or given up by a user, is so no more; all else must not run again
      if (starts > 0 && !world.given.has(id)) world.sealed.set(id, starts);
    } else if (was.launched) back.push(id);
    else if (after?.get(id)) continue;
    else if (was.claimed) world.unsure.add(id);
    else {
      world.gone.add(id);
      world.sealed.set(id, starts);
    }
  }
  const begun = Date.now();
  let left = back;
  for (; left.length > 0 && Date.now() - begun < BACK * 1000; await sleep(200)) {
    const found = await insist(() => Promise.all(left.map((id) => works(world, id))));
    left = left.filter((_, at) => {
      if (found[at]) world.writtenBack.push((Date.now() - begun) / 1000);
      return !found[at];
    });
  }
  for (const id of left) world.wrong.push(`${id} was launched, and was not written back within ${BACK} s`);
}

/** Its record is there, and its lease while it runs. */
async function works(world, id) {
  const job = await world.store.jobs.get(id);
  if (job === null) return false;
  if (ENDED.includes(job.state) || job.launches.length === 0)
    return job.launches.length > 0 || ENDED.includes(job.state);
  if ((await world.store.leasing.list()).some(({ owner }) => owner === id)) return true;
  const now = await world.store.jobs.get(id);
  return now !== null && ENDED.includes(now.state);
}

const empty = (how) => async (world) => {
  world.losses += 1;
  const before = await how(world);
  world.losses += 1;
  for (const one of copies.splice(0)) forget(one);
  await account(world, before, null);
};

const removed = (world) => restart(world, (folder) => rmSync(folder, { recursive: true }));

export const LOSSES = {
  'Redis: FLUSHALL': empty(flush),
  'Redis: restarted empty': empty(removed),
  'Redis: FLUSHALL while no daemon is there': empty(async (world) => {
    await Promise.all(world.hosts.map((host) => host.leave()));
    try {
      return await flush(world);
    } finally {
      for (const host of world.hosts) host.run();
    }
  }),
  'Redis: rolled back': async (world, { pick, random }) => {
    await copy(world);
    await sleep(1000 + random() * 7000);
    const one = pick(copies);
    world.losses += 1;
    const before = await restart(world, (folder) => {
      rmSync(folder, { recursive: true });
      cpSync(one.folder, folder, { recursive: true });
    });
    world.losses += 1;
    for (const newer of copies.splice(copies.indexOf(one) + 1)) forget(newer);
    await account(world, before, one.before);
  },
};
