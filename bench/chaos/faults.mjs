// The faults, one line each. Each is over when it resolves; what it broke for a while it has mended by then.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { kill } from './host.mjs';
import { HOST_FAULTS } from './host-faults.mjs';
import { LOSSES, redisPid } from './losses.mjs';
import { unlessGone } from './users.mjs';
import { insist, sleep } from './world.mjs';

const anyHost = (world, { pick }) => pick(world.hosts);
const pickOf = (world, { pick }, role) => pick(world.processes().filter((found) => found.role === role));

/** The daemon is started again with another stderr, until it ends the next time. */
const elsewhere = (where) => async (world, draw) => {
  const host = anyHost(world, draw);
  host.stderr = where;
  const done = host.strike('SIGTERM');
  await sleep(3000);
  host.stderr = 'log';
  return done;
};

/** A signal to a random process of this role; says whose it was. */
const strike =
  (role, signal, effect) =>
  (world, { pick }) => {
    const one = pickOf(world, { pick }, role);
    if (one === undefined || !kill(one.pid, signal)) return false;
    if (effect !== null) world[effect].add(one.job);
    return true;
  };

/** Holds a process for a while. */
const pause = (pidOf, ms) => async (world, draw) => {
  const pid = await pidOf(world, draw);
  if (!pid || !kill(pid, 'SIGSTOP')) return false;
  await sleep(ms);
  kill(pid, 'SIGCONT');
  return true;
};

/** Tells Redis something, and the opposite after a while. */
const redis =
  (begin, end, ms = 3000) =>
  async (world) => {
    await world.admin(...begin);
    await sleep(ms);
    await insist(() => world.admin(...end));
  };

const launchFolder = (world, draw) => pickOf(world, draw, 'supervisor');

/** Takes room on the disk away but for `left` bytes. */
const fill = (left, ms) => async (world) => {
  const path = join(world.disk, 'filler');
  const file = openSync(path, 'w');
  const free = () => {
    const { bavail, bsize } = statfsSync(world.disk);
    return bavail * bsize;
  };
  try {
    while (free() > left) writeSync(file, Buffer.alloc(Math.min(1 << 20, Math.max(4096, free() - left))));
  } catch {} // full
  closeSync(file);
  await sleep(ms);
  rmSync(path);
};

/** Changes a file of a launch that runs; its end may be lost with it. */
const spoil = (name, how) => (world, draw) => {
  const one = launchFolder(world, draw);
  if (one === undefined) return false;
  try {
    how(join(one.dir, name));
  } catch {
    return false; // it has ended
  }
  world.lost.add(one.job);
  return true;
};

const anyJob = async (world, { pick }) => pick(await insist(() => world.store.jobs.live()));

/** Takes the record of a job away that runs at this very moment, and does what follows. */
const onRecord =
  (instead) =>
  async (world, { pick }) => {
    const running = (await insist(() => world.store.jobs.live())).filter(({ state }) => state === 'running');
    const one = pick(running);
    const script = `if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 0 end redis.call('DEL', KEYS[1]) ${instead} return 1`;
    return one !== undefined && (await world.admin('EVAL', script, '1', world.store.keys.job(one.job))) === 1;
  };

/** Returns or resolves with false where there was nothing to strike. */
export const FAULTS = {
  'daemon: SIGKILL': (world, draw) => anyHost(world, draw).strike('SIGKILL'),
  'daemon: SIGTERM': (world, draw) => anyHost(world, draw).strike('SIGTERM'),
  'daemon: stopped for 3 s': pause((world, draw) => anyHost(world, draw).pid, 3000),
  'daemon: SIGKILL twice while it starts': async (world, draw) => {
    const host = anyHost(world, draw);
    host.strike('SIGKILL');
    await sleep(700);
    host.strike('SIGKILL');
  },
  'daemons: SIGKILL of both': (world) => world.hosts.map((host) => host.strike('SIGKILL')).some(Boolean),
  'daemon: its stderr is full': elsewhere('full'),
  'daemon: nobody reads its stderr': elsewhere('closed'),
  'supervisor: SIGKILL': strike('supervisor', 'SIGKILL', 'lost'),
  'supervisor: SIGSTOP': strike('supervisor', 'SIGSTOP', null),
  'supervisor: SIGTERM': strike('supervisor', 'SIGTERM', 'hit'),
  'keeper: SIGKILL': strike('keeper', 'SIGKILL', null),
  'keeper: SIGSTOP': strike('keeper', 'SIGSTOP', null),
  'supervisor and daemon: SIGKILL': (world, draw) => {
    const one = pickOf(world, draw, 'supervisor');
    if (one === undefined) return false;
    one.host.strike('SIGKILL');
    world.lost.add(one.job);
    return kill(one.pid, 'SIGKILL');
  },
  'job: SIGKILL': strike('job', 'SIGKILL', 'hit'),
  'job: SIGTERM': strike('job', 'SIGTERM', 'hit'),
  'job: stopped for 2 s': pause((world, draw) => pickOf(world, draw, 'job')?.pid, 2000),
  'Redis: SIGKILL': async (world) => kill(await redisPid(world), 'SIGKILL'),
  'Redis: stopped for 3 s': pause(redisPid, 3000),
  'Redis: SHUTDOWN': async (world) => {
    await world.admin('SHUTDOWN').catch(() => {});
  },
  'Redis: HGETALL denied': redis(['ACL', 'SETUSER', 'default', '-hgetall'], ['ACL', 'SETUSER', 'default', '+hgetall']),
  'Redis: scripts denied': redis(
    ['ACL', 'SETUSER', 'default', '-evalsha', '-eval'],
    ['ACL', 'SETUSER', 'default', '+evalsha', '+eval'],
  ),
  'Redis: HMGET denied': redis(['ACL', 'SETUSER', 'default', '-hmget'], ['ACL', 'SETUSER', 'default', '+hmget']),
  'Redis: another password': async (world) => {
    await world.admin('ACL', 'SETUSER', 'default', 'resetpass', '>other');
    await world.admin('CLIENT', 'KILL', 'USER', 'default').catch(() => {});
    await sleep(3000);
    await insist(() => world.admin('ACL', 'SETUSER', 'default', 'nopass'));
  },
  "Redis: busy with another's script": async (world) => {
    await world.admin('CONFIG', 'SET', 'busy-reply-threshold', '100');
    const loop = "local t = redis.call('TIME')[1] repeat until redis.call('TIME')[1] - t > 2 return 1";
    await world.admin('EVAL', loop, '0').catch(() => {});
  },
  'Redis: out of memory': redis(['CONFIG', 'SET', 'maxmemory', '1'], ['CONFIG', 'SET', 'maxmemory', '0']),
  'Redis: too few replicas': redis(
    ['CONFIG', 'SET', 'min-replicas-to-write', '1'],
    ['CONFIG', 'SET', 'min-replicas-to-write', '0'],
  ),
  'Redis: read-only': redis(['REPLICAOF', '127.0.0.1', '1'], ['REPLICAOF', 'NO', 'ONE']),
  'Redis: all connections cut': async (world) => {
    await world.admin('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await world.admin('CLIENT', 'KILL', 'TYPE', 'pubsub');
  },
  'Redis: clients held for 2 s': async (world) => {
    await world.admin('CLIENT', 'PAUSE', '2000', 'ALL').catch(() => {});
    await sleep(2000);
  },
  'Redis: scripts forgotten': async (world) => {
    await world.admin('SCRIPT', 'FLUSH');
  },
  'Redis: a record of garbage': async (world, { random }) => {
    const id = `j-evil${Math.floor(random() * 1e9).toString(36)}`;
    const { keys } = world.store;
    await world.admin('HSET', keys.job(id), 'state', 'queued', 'command', '{', 'epoch', 'NaN');
    await world.admin('ZADD', keys.live, Date.now(), id);
    await world.admin('SADD', keys.pending, id);
  },
  'disk: full for 3 s': fill(0, 3000),
  'disk: little room for 3 s': fill(20 << 20, 3000),
  'launch folder: removed': spoil('', (path) => rmSync(path, { recursive: true })),
  "job's folder and daemon: removed, SIGKILL": (world, draw) => {
    const one = launchFolder(world, draw);
    if (one === undefined) return false;
    world.lost.add(one.job);
    one.host.strike('SIGKILL');
    rmSync(join(one.host.home, 'runs', one.job), { recursive: true, force: true });
  },
  'supervisor.json: zeros': spoil('supervisor.json', (path) => writeFileSync(path, Buffer.alloc(400))),
  'ledger: truncated': spoil('ledger', (path) => truncateSync(path, 0)),
  'log: removed': spoil('log', (path) => rmSync(path)),
  'log: a FIFO in its place': spoil('log', (path) => {
    rmSync(path);
    execFileSync('mkfifo', [path]);
  }),
  'ledger: garbage': spoil('ledger', (path) => {
    const file = openSync(path, 'r+');
    writeSync(file, randomBytes(4096));
    closeSync(file);
  }),
  'home: drafts of a crash': (world, draw) => {
    const folder = join(anyHost(world, draw).home, 'daemon');
    if (!existsSync(folder)) return false;
    for (const name of readdirSync(folder))
      if (name.endsWith('.json')) writeFileSync(join(folder, `${name}.1.tmp`), '{');
  },
  "Redis: something else in a running job's record": onRecord("redis.call('SET', KEYS[1], 'something else')"),
  "Redis: a running job's record deleted": onRecord(''),
  'user: cancels a job': async (world, draw) => {
    const job = await anyJob(world, draw);
    if (job === undefined) return false;
    world.hit.add(job.job);
    await insist(() => world.daemonApi.cancelJob(world.store, job.job).catch(unlessGone));
  },
  'user: holds and releases a job': async (world, draw) => {
    const job = await anyJob(world, draw);
    if (job?.state !== 'queued') return false;
    await insist(() => world.daemonApi.holdJob(world.store, job.job).catch(unlessGone));
    await sleep(500);
    await insist(() => world.daemonApi.releaseJob(world.store, job.job).catch(unlessGone));
  },
  ...LOSSES,
  ...HOST_FAULTS,
};
