import { afterEach, beforeEach, expect, test } from 'vitest';
import { cancelJob, forgetHost, retryJob, withSilence } from '../../src/daemon/index.js';
import { openStore, type Store } from '../../src/store/index.js';
import { failure, startRedis, until } from '../store/home.js';
import { Host } from './host.js';

/**
 * Two hosts by name, each with a home of its own, on one Redis. A host goes down as far as others can see when its daemon
 * is killed: it is silent, and what it launched goes on where nobody sees it.
 */
let redis: Awaited<ReturnType<typeof startRedis>>;
let a: Host;
let b: Host;
/** A client for which a host is lost as soon as its heartbeat has expired: 20 s, not 60. */
let store: Store;

beforeEach(async () => {
  redis = await startRedis();
  const url = `redis://127.0.0.1:${redis.port}`;
  b = new Host(url);
  a = new Host(url);
  store = await openStore({ url, onOutage: () => {}, lostMs: 1000 });
});
afterEach(async () => {
  process.env.OOMTUNE_HOST = 'host-b';
  await b.close();
  process.env.OOMTUNE_HOST = 'host-a';
  await a.close();
  delete process.env.OOMTUNE_HOST;
  await store.close();
  await redis.stop();
});

const start = (host: Host, name: string) => host.start({ sweepMs: 500, cancelLookMs: 300 }, { OOMTUNE_HOST: name });

/** Runs the job on A, and has A be silent with it. */
async function lostWith(line: string, changes = {}): Promise<string> {
  await start(a, 'host-a');
  const id = await a.shell(line, changes);
  await a.state(id, 'running');
  await a.kill();
  await start(b, 'host-b');
  await until(async () => !(await store.hosts.isAlive('host-a')), 40);
  expect(a.processes().length).toBeGreaterThan(0);
  return id;
}

/** A is back: its copy is ended before it takes or adopts anything. */
async function aComesBack(id: string): Promise<void> {
  await start(a, 'host-a');
  await until(() => a.processes().length === 0, 5); // a keeper ends a moment after what it kept
  expect(a.said).toContain('its copy here is ended');
  expect((await store.jobs.get(id))?.claimHost).not.toBe('host-a');
}

test('a host that is lost is told, and retry runs its job elsewhere; back again, it ends its own copy first', async () => {
  const id = await lostWith('sleep 60');
  const [told] = await withSilence(store, [(await store.jobs.get(id)) as never]);
  expect((told as { reason: string }).reason).toMatch(
    /^host-a (has not been heard|is lost: it has not been heard) since /,
  );
  await until(async () => (await store.jobs.get(id))?.reason?.startsWith('host-a ') === true); // B wrote it, too
  await retryJob(store, id, process.env);
  await a.state(id, 'running');
  await until(() => a.starts(id) === 2);
  expect(await store.jobs.get(id)).toMatchObject({ claimHost: 'host-b', epoch: 2 });
  expect((await store.leasing.list()).map(({ owner, host }) => [owner, host])).toEqual([[id, 'host-b']]);
  await aComesBack(id);
  expect(await store.jobs.get(id)).toMatchObject({ state: 'running', claimHost: 'host-b' });
  expect((await store.leasing.list()).map(({ owner, host }) => [owner, host])).toEqual([[id, 'host-b']]);
  expect(b.processes().length).toBeGreaterThan(0);
  await cancelJob(store, id);
  await a.state(id, 'cancelled');
});

test('a daemon that was only cut off ends its copy as soon as it hears that the job was given away', async () => {
  await start(a, 'host-a');
  const id = await a.shell('sleep 60');
  await a.state(id, 'running');
  a.daemon?.kill('SIGSTOP'); // as far as others can see
  await start(b, 'host-b');
  await until(async () => !(await store.hosts.isAlive('host-a')), 40);
  await retryJob(store, id, process.env);
  await until(() => a.starts(id) === 2);
  a.daemon?.kill('SIGCONT');
  await until(() => a.processes().length === 0);
  await a.state(id, 'running'); // it is told so once its process is there, which is the first that was waited for
  expect(await store.jobs.get(id)).toMatchObject({ state: 'running', claimHost: 'host-b', epoch: 2 });
  await until(async () => (await store.leasing.list()).length === 1);
  expect((await store.leasing.list())[0]).toMatchObject({ owner: id, host: 'host-b' });
  expect(b.processes().length).toBeGreaterThan(0);
  expect(a.daemon?.exitCode).toBeNull();
  expect(a.starts(id)).toBe(2);
});

test('cancel ends the job of a lost host at once, and frees its lease; a host that was heard a minute ago is waited for', async () => {
  const id = await lostWith('sleep 60');
  const patient = await b.store(); // with the 60 s that users have
  expect(await cancelJob(patient, id)).toBe('running');
  expect((await store.jobs.get(id))?.state).toBe('running');
  expect(await cancelJob(store, id)).toBe('cancelled');
  expect(await store.jobs.get(id)).toMatchObject({ state: 'cancelled', claim: null });
  expect(await store.leasing.list()).toEqual([]);
  await aComesBack(id);
});

test('daemon forget gives up what a host had: queued anew while retries are left, else failed, and its leases are freed', async () => {
  await start(a, 'host-a');
  const once = await a.shell('sleep 61', { retries: 0 });
  const again = await a.shell('sleep 4', { retries: 1 });
  const after = await a.shell('true', { after: [once] });
  await a.state(once, 'running');
  await a.state(again, 'running');
  expect((await failure(forgetHost(store, 'host-a'))).code).toBe('OOMTUNE_HOST_ALIVE');
  expect((await failure(forgetHost(store, 'nowhere'))).message).toBe('There is no host "nowhere".');
  await a.kill();
  await until(async () => !(await store.hosts.isAlive('host-a')), 40);
  expect(await forgetHost(store, 'host-a')).toEqual({
    host: 'host-a',
    queued: [again],
    ended: [once],
    leases: expect.arrayContaining([once]),
  });
  expect(await store.leasing.list()).toEqual([]);
  expect((await store.hosts.list()).map(({ host }) => host)).toEqual([]);
  expect(await store.jobs.get(once)).toMatchObject({ state: 'failed', failure: { class: 'killed' } });
  expect(await store.jobs.get(again)).toMatchObject({ state: 'queued', options: { retries: 0 }, launches: [] });
  await start(b, 'host-b');
  expect(await a.state(again, 'succeeded')).toMatchObject({ host: 'host-b' });
  await a.state(after, 'failed');
  await aComesBack(once);
  expect(a.starts(once)).toBe(1);
});

test('a daemon of the same host name with another home is refused, and drops nothing', async () => {
  await start(a, 'host-a');
  const id = await a.shell('sleep 40; exit 3');
  await a.state(id, 'running');
  await a.kill();
  const before = await store.jobs.get(id);
  await until(async () => !(await store.hosts.isAlive('host-a')), 40);
  await expect(start(b, 'host-a')).rejects.toThrow(/OOMTUNE_HOST_TAKEN/);
  expect(b.said).toContain(a.home);
  expect(await store.jobs.get(id)).toEqual(before);
  await start(a, 'host-a');
  expect(await a.ended(id, 60)).toMatchObject({ state: 'failed', exit_code: 3 });
  expect(a.starts(id)).toBe(1);
});

test('stop --kill ends what Redis has lost as well', async () => {
  process.env.OOMTUNE_HOST = 'host-a';
  await start(a, 'host-a');
  const id = await a.shell('sleep 60');
  await a.state(id, 'running');
  await a.kill();
  await store.connection.redis.flushall();
  expect(await a.stop({ kill: true })).toBe(true);
  await until(() => a.processes().length === 0, 5); // a keeper ends a moment after what it kept
});
