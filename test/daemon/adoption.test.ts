import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { latestEvents, until } from '../store/home.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

test('a run outlives its daemon, killed twice: it ends once and is recorded once, with one log', async () => {
  await host.start();
  const id = await host.shell('for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.5; done; echo end >> ends');
  const first = await host.state(id, 'running');
  const token = readFileSync(join(host.home, 'daemon', 'token'), 'utf8');
  for (let n = 0; n < 2; n += 1) {
    await host.kill();
    await sleep(500);
    await host.start();
  }
  const last = await host.state(id, 'succeeded');
  expect(host.lines('ends')).toEqual(['end']);
  expect(host.starts(id)).toBe(1);
  expect(last.launches).toEqual(first.launches);
  expect(last.started_at).toBe(first.started_at);
  expect(readFileSync(join(host.home, 'daemon', 'token'), 'utf8')).toBe(token);
  const log = readFileSync(join(first.launches[0]?.dir as string, 'log'), 'utf8');
  expect(log).toBe('tick 1\ntick 2\ntick 3\ntick 4\ntick 5\ntick 6\ntick 7\ntick 8\n');
  const pieces = await (await host.store()).logs.read(id);
  expect(Buffer.concat(pieces.map((piece) => piece.data)).toString()).toBe(log); // the tail is neither cut nor doubled
  const ends = (await latestEvents(await host.store(), 100)).filter((event) => event.state === 'succeeded');
  expect(ends).toHaveLength(1);
  await until(async () => (await host.leftOver()).length === 0);
});

test('a job that ends while no daemon lives is recorded by the next', async () => {
  await host.start();
  const good = await host.shell('sleep 1; exit 0');
  const bad = await host.shell('sleep 1; echo boom >&2; exit 3');
  await host.state(good, 'running');
  await host.state(bad, 'running');
  await host.kill();
  await until(() => host.processes().length === 0);
  expect((await host.job(bad)).state).toBe('running'); // nobody could say otherwise
  const over = Date.now();
  await sleep(1500);
  await host.start();
  expect(Date.parse((await host.state(good, 'succeeded')).ended_at ?? '')).toBeLessThanOrEqual(over);
  const last = await host.state(bad, 'failed');
  expect(last).toMatchObject({ exit_code: 3 });
  expect(Date.parse(last.ended_at ?? '')).toBeLessThanOrEqual(over);
  expect([host.starts(good), host.starts(bad)]).toEqual([1, 1]);
  expect(await host.leftOver()).toEqual([]);
});

test('a job that is cancelled while no daemon lives, and is through before the next comes, has succeeded; one that runs on is ended', async () => {
  await host.start();
  const quick = await host.shell('sleep 1');
  const long = await host.shell('sleep 300');
  await host.state(quick, 'running');
  await host.state(long, 'running');
  await host.kill();
  const { jobs } = await host.store();
  await Promise.all([quick, long].map((id) => jobs.cancel(id)));
  await sleep(1500);
  const over = Date.now();
  await host.start();
  const last = await host.ended(quick);
  expect(last).toMatchObject({ state: 'succeeded', exit_code: 0 });
  expect(Date.parse(last.ended_at ?? '')).toBeLessThanOrEqual(over);
  await host.state(long, 'cancelled');
  expect(await host.leftOver()).toEqual([]);
});

test('stop lets jobs go on, and the next daemon takes them over', async () => {
  await host.start();
  const id = await host.shell('sleep 2');
  await host.state(id, 'running');
  const waiting = await host.shell('true', { device: 'cuda' }); // no host has one here
  expect(await host.stop()).toBe(true);
  await expect.poll(() => host.daemon?.exitCode).toBe(0); // told a moment after it is gone
  expect(host.processes().length).toBeGreaterThan(0);
  expect((await host.job(id)).state).toBe('running');
  expect(await host.stop()).toBe(false);
  await host.start();
  await host.state(id, 'succeeded');
  expect(host.starts(id)).toBe(1);
  expect((await host.job(waiting)).state).toBe('queued');
});

const STUBBORN = `
  setsid sh -c 'trap "" TERM; sleep 300 & wait; sleep 300' &
  (trap "" TERM; sleep 300) &
  trap "" TERM
  while true; do sleep 1; done`;

test('stop --kill ends every process of every job, those that left their session and those deaf to TERM too', async () => {
  await host.start();
  const id = await host.shell(STUBBORN);
  const other = await host.shell('sleep 300');
  await host.state(id, 'running');
  await host.state(other, 'running');
  await until(() => host.processes().length >= 6);
  expect(await host.stop({ kill: true })).toBe(true);
  expect(host.processes()).toEqual([]);
  expect((await host.job(id)).state).toBe('cancelled');
  expect((await host.job(other)).state).toBe('cancelled');
  await host.start();
  await sleep(1000);
  expect([host.starts(id), host.starts(other)]).toEqual([1, 1]);
  expect(await host.leftOver()).toEqual([]);
});

test('stop --kill also ends what a killed daemon left behind', async () => {
  await host.start();
  const id = await host.shell('sleep 300');
  await host.state(id, 'running');
  await host.kill();
  expect(await host.stop({ kill: true })).toBe(true);
  expect(host.processes()).toEqual([]);
  expect((await host.job(id)).state).toBe('cancelled');
  await host.start();
  await until(async () => (await host.leftOver()).length === 0);
  expect(host.starts(id)).toBe(1);
});

test('killed at any moment around a launch, a daemon starts no job twice and loses none', async () => {
  await host.start();
  const ids: string[] = [];
  for (let n = 0; n < 12; n += 1) ids.push(await host.shell('sleep 0.2; echo $OOMTUNE_JOB_ID >> ends'));
  for (let n = 0; n < 8; n += 1) {
    await sleep(60 + 45 * n);
    await host.kill();
    await host.start();
  }
  for (const id of ids) expect(await host.ended(id, 60)).toMatchObject({ state: 'succeeded', failure: null });
  expect(ids.map((id) => host.starts(id))).toEqual(ids.map(() => 1));
  expect(host.lines('ends').sort()).toEqual([...ids].sort());
  await until(async () => (await host.leftOver()).length === 0);
});

test('a pid that another process got in the meantime is not taken for the supervisor', async () => {
  await host.start();
  const id = await host.shell('sleep 300');
  const job = await host.state(id, 'running');
  await host.kill();
  for (const pid of host.processes()) process.kill(pid, 'SIGKILL');
  await until(() => host.processes().length === 0);
  // The record now names a living process of ours, with another start time
  const file = join(job.launches[0]?.dir as string, 'supervisor.json');
  const record = JSON.parse(readFileSync(file, 'utf8'));
  writeFileSync(file, JSON.stringify({ ...record, pid: process.pid }));
  await host.start();
  const ended = await host.ended(id);
  expect(ended.state).not.toBe('succeeded');
  expect(await host.leftOver()).toEqual([]);
});

test('a run whose script was moved meanwhile is not ended by the restart of its daemon', async () => {
  const script = join(host.work, 'train.py');
  const lines = ['import time', 'open("begun", "w").close()', 'time.sleep(2)', 'open("ends", "a").write("end\\n")', ''];
  writeFileSync(script, lines.join('\n'));
  await host.start();
  const id = await host.submit(['/usr/bin/python3', script]);
  // A job is running before its interpreter has opened the script.
  await until(() => existsSync(join(host.work, 'begun')));
  await host.kill();
  renameSync(script, `${script}.old`);
  await host.start();
  await host.state(id, 'succeeded');
  expect(host.lines('ends')).toEqual(['end']);
  expect(await host.leftOver()).toEqual([]);
});
