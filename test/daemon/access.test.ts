import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { daemonStatus, startDaemon } from '../../src/daemon/index.js';
import { failure, script, until } from '../store/home.js';
import { Host } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(async () => {
  delete process.env.SUBMITTERS_SECRET;
  await host.close();
});

const SECRET = 'hunter2-do-not-tell';

/** Everything that is in Redis, as text. */
async function everything(): Promise<string> {
  const { redis } = (await host.store()).connection;
  const dumps: string[] = [];
  for (const key of await redis.keys('*')) {
    const type = await redis.type(key);
    if (type === 'hash') dumps.push(JSON.stringify(await redis.hgetall(key)));
    else if (type === 'string') dumps.push((await redis.get(key)) ?? '');
    else if (type === 'stream') dumps.push(JSON.stringify(await redis.xrange(key, '-', '+')));
    // A lock may be gone since the keys were listed.
    else dumps.push(((await redis.dumpBuffer(key)) as Buffer | null)?.toString('latin1') ?? '');
  }
  return dumps.join('\n');
}

test('values of --env reach the job, and neither Redis, nor a log, nor a file that others can read', async () => {
  await host.start();
  const command = [
    '/bin/sh',
    '-c',
    'test "$GIVEN" = "$EXPECTED" && test "$NAMED" = "$EXPECTED" && test "$SUBMITTERS_SECRET" = "$EXPECTED"',
  ];
  const environment = { ...process.env, NAMED: SECRET, SUBMITTERS_SECRET: SECRET };
  const id = await host.submit(command, { env: [`GIVEN=${SECRET}`, 'NAMED', `EXPECTED=${SECRET}`] }, environment);
  await host.state(id, 'succeeded');
  expect((await host.job(id)).options.env).toEqual(['GIVEN', 'NAMED', 'EXPECTED']);
  expect(await everything()).not.toContain(SECRET);
  expect(host.said).not.toContain(SECRET);
});

test('--env-file is read when the job is launched, not when it is submitted', async () => {
  const file = join(host.work, 'secrets.env');
  writeFileSync(file, 'TOKEN_OF_JOB=old\n');
  const id = await host.submit(['/bin/sh', '-c', `test "$TOKEN_OF_JOB" = "${'new'}"`], { envFile: file });
  writeFileSync(file, `# comment\nTOKEN_OF_JOB=new\nOTHER="${SECRET}"\n`);
  await host.start();
  await host.state(id, 'succeeded');
  expect(await everything()).not.toContain(SECRET);
});

test('the daemon’s own environment does not leak into jobs; the submitter’s search path does', async () => {
  await host.start({}, { DAEMONS_OWN: SECRET, AWS_SECRET_ACCESS_KEY: SECRET, OOMTUNE_LOG: 'info' });
  const command = ['/bin/sh', '-c', 'env | sort > environment; echo "$PATH" > path'];
  const id = await host.submit(command, {}, { ...process.env, PATH: `${process.env.PATH}:/submitters/bin` });
  await host.state(id, 'succeeded');
  const environment = host.lines('environment').join('\n');
  expect(environment).not.toContain(SECRET);
  expect(environment).not.toContain('OOMTUNE_REDIS');
  expect(host.lines('path')[0]).toMatch(/:\/submitters\/bin$/);
});

test('values of --env keep a job on the host that has them', async () => {
  const error = await failure(host.submit(['true'], { env: ['A=1'], host: 'elsewhere' }));
  expect(error.code).toBe('OOMTUNE_USAGE');
  expect(error.message).not.toContain('1');
  const id = await host.submit(['true'], { env: ['A=1'] });
  expect((await host.job(id)).options.host).not.toBeNull();
});

test('argv is never given to a shell', async () => {
  await host.start();
  const id = await host.submit([
    '/bin/echo',
    '$(touch hacked)',
    '; touch hacked',
    '`touch hacked`',
    '| touch hacked',
    '\n',
  ]);
  const job = await host.state(id, 'succeeded');
  const log = readFileSync(join(job.launches[0]?.dir as string, 'log'), 'utf8');
  expect(log).toBe('$(touch hacked) ; touch hacked `touch hacked` | touch hacked \n\n');
  expect(readdirSync(host.work)).not.toContain('hacked');
});

test('all that daemon and jobs leave on disk is this user’s alone', async () => {
  await host.start();
  await host.state(await host.shell('echo out', { env: ['A=1'] }), 'succeeded');
  await host.state(await host.shell('sleep 60'), 'running');
  const open: string[] = [];
  const look = (folder: string): void => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      const mode = statSync(path).mode & 0o777;
      if ((mode & 0o077) !== 0) open.push(`${mode.toString(8)} ${path}`);
      if (entry.isDirectory()) look(path);
    }
  };
  look(host.home);
  expect(open).toEqual([]);
});

test('one daemon for a home on a host: of two that start at once one says that the other runs', async () => {
  const begun = [host.start(), host.start()];
  const ended = await Promise.allSettled(begun);
  expect(ended.filter((one) => one.status === 'fulfilled')).toHaveLength(1);
  const refused = ended.find((one) => one.status === 'rejected') as PromiseRejectedResult;
  expect(String(refused.reason)).toContain('OOMTUNE_DAEMON_RUNNING');
  const status = await daemonStatus(await host.store());
  expect(status).toMatchObject({
    running: true,
    host: expect.any(String),
    redis: `unix://${host.home}/redis/redis.sock`,
  });
  process.kill(status.pid as number, 'SIGKILL');
  await until(async () => !(await daemonStatus(await host.store())).running);
  await host.start(); // nothing that the crash left is in the way
});

test('started in the background, it is there when start returns, and a second start is refused', async () => {
  const store = await host.store();
  const status = await startDaemon(store, { cpuLanes: 2 });
  expect(status).toMatchObject({ running: true, version: expect.stringMatching(/^\d+\.\d+\.\d+/) });
  const stat = readFileSync(`/proc/${status.pid}/stat`, 'latin1').split(' ');
  expect(Number(stat[5])).toBe(status.pid); // a session of its own: a closed terminal does not end it
  expect((await failure(startDaemon(store))).code).toBe('OOMTUNE_DAEMON_RUNNING');
  await host.state(await host.shell('true'), 'succeeded');
  expect(await host.stop()).toBe(true);
  expect((await daemonStatus(store)).running).toBe(false);
});

test('submit and status do not load BullMQ or the native runtime', async () => {
  const hook = `
    import { writeSync } from 'node:fs';
    export async function load(url, context, next) {
      writeSync(1, 'loaded ' + url + '\\n');
      return next(url, context);
    }`;
  const loaded = await script(`
    const { register } = await import('node:module');
    register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(hook)}));
    const { openStore } = await import(DIST + '/store/index.js');
    const { submitJob } = await import(DIST + '/daemon/index.js');
    const store = await openStore();
    await store.jobs.list();
    await store.close();`).lines;
  expect(loaded.some((line) => line.includes('/ioredis/'))).toBe(true); // it hears of what is loaded
  expect(loaded.filter((line) => /bullmq|\/runtime\/|\.node$|fastify/.test(line))).toEqual([]);
});
