import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectSystem } from '../../../src/cli/system/client.js';
import { systemStore } from '../../../src/cli/system/store.js';
import { until } from '../../store/home.js';
import { job, options, recommendation } from '../../store/samples.js';
import { Machine, noUsers, type User } from './machine.js';

/** What users see of each other's jobs. The records are written as the daemon would, so that nothing has to run. */
describe.skipIf(noUsers !== null)('a daemon for several users', () => {
  let machine: Machine;
  let alice: User;
  let bob: User;
  let admin: User;
  const secret = 'hunter2-in-the-command';
  let hers: string;
  let his: string;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    bob = machine.user();
    admin = machine.user([machine.adminGroup]);
    await machine.start();
    const store = await machine.store();
    const common = { state: 'held' as const, reason: 'on hold until it is released' };
    const record = job({
      ...common,
      name: 'train',
      owner: alice.name,
      uid: alice.uid,
      command: ['python', 'train.py', '--token', secret],
      options: options({ cwd: `/home/${secret}`, env: ['HUNTER2_IN_ENV'], resumeArg: secret }),
      environment: { host: 'h', file: '0123456789abcdef', bound: ['HUNTER2_BOUND'], withheld: [] },
    });
    hers = record.job;
    await store.jobs.create(record);
    const other = job({ ...common, name: 'train', owner: bob.name, uid: bob.uid });
    his = other.job;
    await store.jobs.create(other);
  });
  afterAll(() => machine.close());

  type Status = { jobs: { job: string; name: string; owner: string; state: string; command: string[] }[] };

  it('is found by its socket, and tells each user who it takes him for', async () => {
    expect(await alice.json(['daemon', 'status'])).toMatchObject({ running: true, pid: machine.daemon?.pid, jobs: 2 });
    const { jobs } = await alice.json<Status>(['status']);
    expect(jobs.map((one) => [one.job, one.owner])).toEqual([
      [hers, alice.name],
      [his, bob.name],
    ]);
  });

  it("shows of another's job whose it is and how it stands, and nothing of what it does", async () => {
    const { jobs } = await bob.json<Status>(['status']);
    expect(jobs.find((one) => one.job === hers)).toMatchObject({ name: 'train', owner: alice.name, state: 'held' });
    for (const args of [
      ['status'],
      ['status', hers],
      ['status', '--json'],
      ['explain', hers],
      ['explain', '--json', hers],
    ]) {
      const { stdout, stderr } = await bob.call(args);
      expect(stdout, args.join(' ')).toContain(hers.slice(0, 6));
      expect(`${stdout}${stderr}`.toLowerCase(), args.join(' ')).not.toContain('hunter2');
    }
    for (const user of [alice, admin]) expect((await user.call(['explain', '--json', hers])).stdout).toContain(secret);
  });

  it("takes names and @ for one's own jobs", async () => {
    const names = async (user: User, handle: string) =>
      (await user.json<Status>(['status', handle])).jobs.map((one) => one.job);
    expect(await names(alice, 'train')).toEqual([hers]);
    expect(await names(bob, 'train')).toEqual([his]);
    expect(await names(alice, '@')).toEqual([hers]);
    expect(await names(bob, hers)).toEqual([hers]);
    expect((await admin.call(['status', '@'])).code).toBe(6);
  });

  it('keeps its Redis, its state and the folders of its users to whom they belong', async () => {
    const redis = join(machine.home, 'daemon', 'redis', 'redis.sock');
    expect((await alice.call(['status', '--redis', `unix://${redis}`])).stderr).toMatch(/permission denied/);
    expect((await (await machine.store()).connection.redis.config('GET', 'port')) as unknown).toEqual(['port', '0']);
    for (const path of ['daemon', `users/${bob.uid}`, 'users'])
      expect((await alice.call([join(machine.home, path)], { program: ['ls'] })).code, path).not.toBe(0);
    expect(statSync(join(machine.home, 'users', String(bob.uid)))).toMatchObject({ uid: bob.uid });
  });

  it('has a Redis of copies for other programs, in which recommendations are read and nothing else is done', async () => {
    const store = await machine.store();
    const found = recommendation();
    await store.recommendations.put(found, null);
    const socket = join(machine.root, 'run', 'redis', 'redis.sock');
    const cli = async (...words: string[]) =>
      (await alice.call(['-s', socket, ...words], { program: ['redis-cli'] })).stdout.trim();
    const key = store.keys.config(found.key);
    await until(async () => (await cli('HGET', key, 'micro_batch')) === String(found.micro_batch));
    expect(await cli('ZRANGE', store.keys.configs, '0', '-1')).toBe(found.key);
    await store.recommendations.demote(found.key, 7, null);
    await until(async () => (await cli('HGET', key, 'status')) === 'demoted');
    for (const words of [
      ['HSET', key, 'micro_batch', '1'],
      ['DEL', key],
      ['FLUSHALL'],
      ['CONFIG', 'GET', '*'],
      ['ACL', 'LIST'],
      ['EVAL', 'return 1', '0'],
      ['SHUTDOWN'],
      ['HGETALL', store.keys.job(hers)],
      ['SUBSCRIBE', store.keys.wake],
      ['MONITOR'],
    ])
      expect([words[0], await cli(...words)]).toEqual([words[0], expect.stringMatching(/NOPERM|^$/)]);
    expect(await cli('PING')).toBe('PONG');
    expect(await cli('HGET', key, 'micro_batch')).toBe(String(found.micro_batch));
    await store.connection.redis.del(key, store.keys.configs);
  });

  it("leaves who names a home or a Redis of his own alone, and is told apart from one's own", async () => {
    const own = { env: { OOMTUNE_HOME: join(alice.home, 'own') } };
    expect((await alice.json<Status>(['status'], own)).jobs).toEqual([]);
    expect(await alice.json(['daemon', 'status'], own)).toMatchObject({ running: false });
    await alice.call(['redis', 'stop'], own);
  });

  it("is what `doctor` examines, and not a Redis of one's own", async () => {
    type Checks = { checks: { check: string; status: string; found: string }[] };
    const examined = async (user: User) => (await user.json<Checks>(['doctor'])).checks;
    const serves = (user: User) => ({
      ...{ check: 'daemon', status: 'ok', remedy: null },
      found: expect.stringMatching(new RegExp(`${machine.socket}.* serves ${user.name}`)),
    });
    const hers = await examined(alice);
    expect(hers).toContainEqual(serves(alice));
    expect(hers.filter(({ check }) => check.startsWith('redis'))).toEqual([]);
    expect(hers).toContainEqual({
      ...{ check: 'home', status: 'ok', remedy: null },
      found: join(machine.home, 'users', String(alice.uid)),
    });
    expect(existsSync(join(alice.home, '.local', 'state', 'oomtune'))).toBe(false);
    expect(await examined(admin)).toContainEqual(serves(admin));
    await machine.stop();
    const failed = (await examined(alice)).filter(({ check }) => /daemon|redis|home|hosts|records/.test(check));
    expect(failed).toMatchObject([{ check: 'daemon', status: 'failed' }]);
    await machine.start();
  });

  it("is what verbs speak of that would start, stop or show a daemon of one's own", async () => {
    for (const words of [['daemon', 'start'], ['daemon', 'stop'], ['daemon', 'stop', '--kill'], ['dashboard']]) {
      const { code, stderr } = await alice.call(words);
      expect([code, stderr]).toEqual([2, expect.stringContaining(machine.socket)]);
    }
    expect(existsSync(join(alice.home, '.local', 'state', 'oomtune', 'redis'))).toBe(false);
    const own = { env: { OOMTUNE_HOME: join(alice.home, 'own') } };
    expect((await alice.call(['daemon', 'start', '--http-port', '0'], own)).code).toBe(0);
    expect((await alice.call(['daemon', 'stop'], own)).stderr).toContain('stopped');
    await alice.call(['redis', 'stop'], own);
  });

  it('is asked for any number of jobs at a time', async () => {
    const store = await machine.store();
    const many = Array.from({ length: 100 }, (_, at) =>
      job({ state: 'held', name: `many-${at}`, owner: alice.name, uid: alice.uid, key: `many-${at}` }),
    );
    for (const one of many) await store.jobs.create(one);
    const { jobs } = await alice.json<Status>(['status']); // it asks for each key
    expect(jobs.filter(({ name }) => name.startsWith('many-'))).toHaveLength(many.length);
    expect(await alice.call(['hold', 'many-*'])).toMatchObject({ code: 0 });
    expect((await alice.call(['cancel', 'many-*'])).stderr.match(/cancelled/g)).toHaveLength(many.length);
    expect(await alice.call(['wait', 'many-*'])).toMatchObject({ code: 4 });
    const { channel } = await connectSystem(machine.socket);
    const { events } = systemStore(machine.socket, channel);
    const heard = new Set<number>();
    await Promise.all(many.map((_, at) => events.listen((what) => what === 'label' && heard.add(at))));
    await store.events.wake('label');
    await until(() => heard.size === many.length);
    channel.close();
  });

  it('takes an argument that is left out for none', async () => {
    expect(await alice.call(['recommend'])).toMatchObject({ code: 0 });
    const { channel } = await connectSystem(machine.socket);
    const { jobs, recommendations, hosts, leasing, memory } = systemStore(machine.socket, channel);
    const outcome = async (part: object, name: string, args: undefined[]) => {
      try {
        return await (part as Record<string, (...args: undefined[]) => unknown>)[name]?.(...args);
      } catch (error) {
        return (error as Error).message;
      }
    };
    for (const part of [jobs, recommendations, hosts, leasing, memory])
      for (const name of Object.keys(part))
        expect(await outcome(part, name, [undefined]), name).toEqual(await outcome(part, name, []));
    channel.close();
  });

  it('offers what every verb that looks needs, also of a job that runs', async () => {
    const job = await alice.submit(['sleep', '100'], ['--name', 'runs']);
    await until(async () => (await (await machine.store()).jobs.get(job))?.state === 'running', 60);
    for (const args of [
      ...[['top'], ['status'], ['status', '--users'], ['status', job], ['explain', job], ['logs', job], ['devices']],
      ...[['recommend'], ['doctor'], ['daemon', 'status']],
    ]) {
      for (const more of [[], ['--json']]) {
        const { stdout, stderr } = await alice.call([...args, ...more]);
        expect(`${stdout}${stderr}`, args.join(' ')).not.toMatch(/does not offer|OOMTUNE_INTERNAL/);
        if (more.length > 0) expect(Object.keys(JSON.parse(stdout)), args.join(' ')).not.toContain('error');
      }
    }
    expect((await alice.call(['cancel', job])).code).toBe(0);
  });

  it('says what it does not offer, and where it is when it does not answer', async () => {
    const offered = await alice.script(`
      const { connect } = await import('node:net');
      const socket = connect(${JSON.stringify(machine.socket)});
      socket.write(JSON.stringify({ id: 1, call: 'jobs.patch', args: ['${hers}', { owner: 'me' }] }) + '\\n');
      socket.on('data', (data) => { console.log(String(data)); socket.destroy(); });
    `);
    expect(JSON.parse(offered.stdout)).toMatchObject({ id: 1, error: { code: 'OOMTUNE_USAGE' } });
    await machine.stop();
    const { code, stderr } = await alice.call(['status']);
    expect([code, stderr]).toEqual([5, expect.stringContaining('OOMTUNE_DAEMON_DOWN')]);
    await machine.start();
  });
});
