import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { useHome } from '../../../src/common/home.js';
import { runDaemonHere } from '../../../src/daemon/run.js';
import { openStore, type Store } from '../../../src/store/index.js';
import { until } from '../../store/home.js';
import { Machine, noUsers, type User } from './machine.js';

/** The daemon itself, in this process: its interval of ten minutes is a second here. */
describe.skipIf(noUsers !== null)("what users' jobs leave", () => {
  const controller = new AbortController();
  let machine: Machine;
  let alice: User;
  let store: Store;
  let daemon: Promise<void>;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    useHome(join(machine.home, 'daemon'));
    store = await openStore({ url: null });
    const system = { socket: machine.socket, home: machine.home, adminGroup: machine.adminGroup };
    daemon = runDaemonHere(store, { signal: controller.signal, system, tidyMs: 1000, httpPort: 0 });
    await Promise.race([daemon, until(() => machine.answers(), 60)]);
  });
  afterAll(async () => {
    controller.abort();
    await daemon;
    await store.close();
    await machine.close();
  });

  const agents = async (user = alice): Promise<string[]> => {
    const { stdout } = await user.call(['-U', String(user.uid), '-f', '__agent'], { program: ['pgrep'] });
    return stdout.split('\n').filter((line) => line !== '');
  };

  it('is removed by their agents when it is old, and agents with nothing to do end', async () => {
    await alice.call(['status']); // makes her folder
    const runs = join(machine.home, 'users', String(alice.uid), 'runs');
    const old = join(runs, 'j-longago1');
    const make = `umask 077; mkdir -p ${old}/1 && touch -d '400 days ago' ${old}/1 ${old}`;
    expect((await alice.call(['-c', make], { program: ['sh'] })).code).toBe(0);
    const job = await alice.submit(['true']);
    expect((await alice.call(['wait', job])).code).toBe(0);
    await until(() => !existsSync(old), 60);
    expect(existsSync(join(runs, job, '1'))).toBe(true);
    await until(async () => (await agents()).length === 0, 60);
  });

  it('is an environment, where nobody heard that its job ended: it goes, though its user does nothing any more', async () => {
    const bob = machine.user();
    const job = await bob.submit(['true'], ['--label', 'nowhere', '--env', 'TOKEN=secret']);
    const folder = join(machine.home, 'users', String(bob.uid), 'daemon', 'environments');
    const [file = ''] = readdirSync(folder);
    expect(file).toContain(job);
    const age = `touch -d '10 minutes ago' ${folder}/* ${folder}-swept`;
    expect((await bob.call(['-c', age], { program: ['sh'] })).code).toBe(0);
    // As `cancel` does it, but that its wake is lost
    const { connection, keys } = store;
    const ended = JSON.stringify(new Date().toISOString());
    await connection.redis
      .multi()
      .hset(keys.job(job), 'state', 'cancelled', 'ended_at', ended)
      .zrem(keys.live, job)
      .exec();
    await until(() => !existsSync(join(folder, file)), 60);
    await until(async () => (await agents(bob)).length === 0, 60);
  });

  it('is no matter while a job runs: its agent stays, and the next is started when it is needed', async () => {
    const file = join(alice.home, 'go');
    const job = await alice.submit(['sh', '-c', `while ! [ -e ${file} ]; do sleep 0.1; done`]);
    await until(async () => (await store.jobs.get(job))?.state === 'running', 60);
    const before = await agents();
    expect(before).toHaveLength(1);
    await new Promise((resolve) => setTimeout(resolve, 3500)); // it is told to tidy three times
    expect(await agents()).toEqual(before);
    expect((await alice.call([file], { program: ['touch'] })).code).toBe(0);
    expect((await alice.call(['wait', job])).code).toBe(0);
    await until(async () => (await agents()).length === 0, 60);
  });
});
