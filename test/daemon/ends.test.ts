import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { redisStatus } from '../../src/store/index.js';
import { ROOT, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const supervisorFile = async (id: string) =>
  join((await host.job(id)).launches.at(-1)?.dir as string, 'supervisor.json');
const supervisor = async (id: string): Promise<number> =>
  JSON.parse(readFileSync(await supervisorFile(id), 'utf8')).pid;

/** The command line, in a Node that collects garbage all the time. */
function oomtune(...args: string[]) {
  const child = spawn(process.execPath, ['--gc-interval=200', join(ROOT, 'bin', 'oomtune.js'), ...args], {
    env: { PATH: process.env.PATH, HOME: host.home, OOMTUNE_HOME: host.home },
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  return { child, ended: once(child, 'exit').then(([code]) => ({ code: code as number | null, said })) };
}

test('a job that stops its supervisor can be cancelled, and daemon stop --kill ends', async () => {
  await host.start();
  const line = 'kill -STOP $PPID; sleep 600';
  const [first, second] = [await host.shell(line), await host.shell(line)];
  for (const id of [first, second]) await host.state(id, 'running');
  expect(await oomtune('cancel', first).ended).toMatchObject({ code: 0, said: expect.stringContaining('cancelled') });
  expect((await host.job(first)).state).toBe('cancelled');
  expect(await oomtune('daemon', 'stop', '--kill').ended).toMatchObject({ code: 0 });
  expect((await host.job(second)).state).toBe('cancelled');
  await expect.poll(() => host.leftOver()).toEqual([]);
});

test('cancel says after its time that a host does not answer', async () => {
  const daemon = await host.start();
  const id = await host.shell('sleep 600');
  await host.state(id, 'running');
  daemon.kill('SIGSTOP');
  const { code, said } = await oomtune('cancel', id).ended;
  daemon.kill('SIGCONT');
  expect([code, said]).toEqual([0, expect.stringContaining('is to be cancelled')]);
  await host.state(id, 'cancelled');
});

test('an interrupt ends a verb that waits for a Redis which does not answer', async () => {
  await host.start();
  const id = await host.shell('sleep 600');
  await host.state(id, 'running');
  const verbs = [oomtune('wait', id), oomtune('logs', '-f', id)];
  await sleep(2000);
  const redis = (await redisStatus()).pid as number;
  process.kill(redis, 'SIGSTOP');
  try {
    for (const { child } of verbs) child.kill('SIGTERM');
    for (const { ended } of verbs) expect((await ended).code).toBe(143);
    // The daemon needs no Redis to be told to stop
    expect(await oomtune('daemon', 'stop').ended).toMatchObject({ code: 0, said: expect.stringContaining('stopped') });
  } finally {
    process.kill(redis, 'SIGCONT');
  }
});

test('a record of the supervisor that a power cut left full of zeros does not stick the job', async () => {
  await host.start();
  const [lives, gone] = [await host.shell('sleep 600', { retries: 0 }), await host.shell('sleep 600', { retries: 0 })];
  for (const id of [lives, gone]) await host.state(id, 'running');
  await host.kill();
  const pid = await supervisor(gone);
  for (const id of [lives, gone]) writeFileSync(await supervisorFile(id), Buffer.alloc(412));
  process.kill(pid, 'SIGKILL');
  await until(() => host.processes().length <= 4); // the other's
  await host.start();
  expect((await host.state(gone, 'failed')).failure?.class).toBe('killed');
  await host.state(lives, 'running');
  expect(await oomtune('cancel', lives).ended).toMatchObject({ code: 0 });
  await host.state(lives, 'cancelled');
  expect([host.starts(lives), host.starts(gone)]).toEqual([1, 1]);
  await expect.poll(() => host.leftOver()).toEqual([]);
});

test('a run that is killed with -9 leaves no process behind, and its lease is freed', async () => {
  const store = await host.store();
  const mark = join(host.work, 'mark');
  const { child, ended } = oomtune(
    ...['run', '--no-tune', '--device', 'cpu', '--budget', '64MiB', '--'],
    ...['sh', '-c', `setsid sleep 600 & echo on > ${mark}; sleep 600`],
  );
  await until(() => host.lines('mark').length === 1);
  expect(await store.leasing.list()).toHaveLength(1);
  const [shown] = JSON.parse((await oomtune('status', '--json').ended).said).foreground;
  expect(shown).toMatchObject({ verb: 'run', pid: child.pid, devices: ['cpu'], budget_bytes: 64 * 1024 ** 2 });
  const line = `${shown.job} .* running .* oomtune run in the foreground, process ${child.pid}`;
  expect((await oomtune('status').ended).said).toMatch(new RegExp(line));
  expect(await oomtune('cancel', shown.job).ended).toMatchObject({
    code: 6,
    said: expect.stringContaining(`kill ${child.pid}`),
  });
  child.kill('SIGKILL');
  await ended;
  await until(() => host.processes().length === 0);
  expect(JSON.parse((await oomtune('status', '--json').ended).said).foreground).toEqual([]);
  expect((await oomtune('devices', '--json').ended).said).toContain('"reserved_bytes":0');
  await expect.poll(() => host.leftOver()).toEqual([]);
});

test('what only asks Redis ends within a minute although that goes silent', async () => {
  const id = await host.shell('true');
  const socket = (await redisStatus()).url.replace('unix://', '');
  // Between the two: hands everything on until a job is asked for, and nothing more from then on
  const relay = createServer((client) => {
    const server = connect(socket);
    for (const end of [client, server]) end.on('error', () => {});
    server.pipe(client);
    let silent = false;
    client.on('data', (data) => {
      silent ||= /hgetall|hmget|zrange/i.test(data.toString('latin1'));
      if (!silent) server.write(data);
    });
    client.on('close', () => server.destroy());
  }).listen(0, '127.0.0.1');
  await once(relay, 'listening');
  const url = `redis://127.0.0.1:${(relay.address() as AddressInfo).port}`;
  const verbs = [oomtune('hold', '--redis', url, id), oomtune('status', '--redis', url)];
  for (const { ended } of verbs) {
    expect(await ended).toMatchObject({ code: 5, said: expect.stringContaining('did not answer within 60 s') });
  }
  relay.close();
});
