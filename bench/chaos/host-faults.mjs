// A host is gone: down with all that runs there, or only cut off, and given up by a user meanwhile.
import { kill } from './host.mjs';
import { unlessGone } from './users.mjs';
import { insist, sleep } from './world.mjs';

/** Seconds until a host that is not heard counts as silent, and some more. */
const SILENT = 30;

const jobsOf = (host) => new Set(host.processes().map(({ job }) => job));

/** The machine is off: nothing of it is left. */
async function down(world, host) {
  await host.leave();
  for (const { job } of host.processes()) world.lost.add(job);
  for (let left = host.processes(); left.length > 0; left = host.processes()) {
    for (const { pid } of left) kill(pid, 'SIGKILL');
    await sleep(20);
  }
}

async function untilSilent(world, host) {
  for (const until = Date.now() + SILENT * 1000; Date.now() < until; await sleep(200))
    if (!(await insist(() => world.store.hosts.isAlive(host.name)))) return;
  world.wrong.push(`${host.name} counts as alive ${SILENT} s after its end`);
}

/** Jobs that the host answers for; what becomes of them is a user's doing. */
async function given(world, host) {
  const jobs = (await insist(() => world.store.jobs.live())).filter(({ claimHost }) => claimHost === host.name);
  for (const { job } of jobs) {
    world.given.add(job);
    world.lost.add(job);
  }
  return jobs;
}

/** Gives the host up, as `oomtune daemon forget`. */
async function forget(world, host) {
  await given(world, host);
  await insist(() => world.daemonApi.forgetHost(world.store, host.name).catch(unlessGone));
  const left = (await insist(() => world.store.leasing.list())).filter((lease) => lease.host === host.name);
  if (left.length > 0)
    world.wrong.push(`${host.name} was given up, and holds leases of ${left.map((one) => one.owner)}`);
}

/** It was back: what it still runs is what it answers for. */
async function noCopies(world, host) {
  for (const until = Date.now() + SILENT * 1000; Date.now() < until; await sleep(300)) {
    const running = jobsOf(host);
    const jobs = await insist(() => world.store.jobs.live());
    const theirs = new Set(jobs.filter(({ claimHost }) => claimHost === host.name).map(({ job }) => job));
    if ([...running].every((job) => theirs.has(job) || !world.given.has(job))) return;
  }
  world.wrong.push(`${host.name} still runs copies of what was given to others`);
}

const second = (world) => world.hosts[1];

export const HOST_FAULTS = {
  'host: down, and up again': async (world) => {
    const host = second(world);
    await down(world, host);
    await sleep(1000);
    host.run();
  },
  'host: down, and forgotten': async (world) => {
    const host = second(world);
    await down(world, host);
    await untilSilent(world, host);
    await forget(world, host);
    host.run();
  },
  'host: cut off and forgotten, and back': async (world) => {
    const host = second(world);
    const { pid } = host;
    if (!kill(pid, 'SIGSTOP')) return false;
    try {
      await untilSilent(world, host);
      await forget(world, host);
    } finally {
      kill(pid, 'SIGCONT');
    }
    await noCopies(world, host);
  },
  'host: lost, its jobs cancelled and retried elsewhere, and back': async (world) => {
    const host = second(world);
    await host.leave();
    try {
      await untilSilent(world, host);
      for (const [at, { job, launches }] of (await given(world, host)).entries()) {
        world.hit.add(job);
        const { cancelJob, retryJob } = world.daemonApi;
        const act = at % 2 === 0 || launches.length === 0 ? cancelJob : retryJob;
        await insist(() => act(world.hasty, job, act === retryJob ? process.env : undefined).catch(unlessGone));
      }
    } finally {
      host.run();
    }
    await noCopies(world, host);
  },
};
