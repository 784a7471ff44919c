import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { type Notification, notification } from '../../src/contract/notification.js';
import type { Hands } from '../../src/daemon/hands.js';
import { Notifier } from '../../src/daemon/notify/notifier.js';
import { until } from '../store/home.js';
import { FIXTURES, pythonWithTorch } from '../worker/harness.js';
import { Host, hostName, sleep } from './host.js';

let host: Host;
let server: Server;
let got: { method: string; type: string; event: Notification }[];
/** What the server answers with. */
let status: number;

beforeEach(async () => {
  host = new Host();
  got = [];
  status = 200;
  server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      const { method = '', headers } = request;
      got.push({ method, type: headers['content-type'] ?? '', event: notification.parse(JSON.parse(body)) });
      response.writeHead(status).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(async () => {
  await host.close();
  await new Promise((resolve) => server.close(resolve));
});

const url = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?key=secret-of-the-hook`;
const submit = (line: string, target: string, changes = {}): Promise<string> =>
  host.submit(['/bin/sh', '-c', line], { notify: true, ...changes }, { ...process.env, OOMTUNE_NOTIFY: target });
const settled = async (): Promise<boolean> => (await (await host.store()).notify.owed()).size === 0;

test('a URL gets each end of a job once, and stands in no record and in no log', async () => {
  await host.start();
  const [good, bad] = [
    await submit('true', url()),
    await submit('echo no such thing >&2; exit 3', url(), { retries: 0 }),
  ];
  await until(async () => got.length === 2 && (await settled()), 30);
  expect(got.map(({ method, type }) => [method, type])).toEqual(Array(2).fill(['POST', 'application/json']));
  const of = (job: string) => got.find(({ event }) => event.job === job)?.event;
  expect(of(good)).toMatchObject({ event: 'ended', state: 'succeeded', exit_code: 0, failure: null });
  expect(of(good)?.text).toMatch(/^\S+ \(j-\w+\) succeeded after \d+s on .* cpu$/);
  expect(of(bad)).toMatchObject({ event: 'ended', state: 'failed', exit_code: 3, failure: { class: 'user_error' } });
  await sleep(1500);
  expect(got).toHaveLength(2);
  const { connection, keys } = await host.store();
  expect(JSON.stringify(await connection.redis.hgetall(keys.job(good)))).not.toContain('secret-of-the-hook');
  expect(host.said).not.toContain('secret-of-the-hook');
  // Whom to tell goes with the environment, once it was told
  const left = readdirSync(join(host.home, 'daemon', 'environments'));
  expect(left.filter((name) => name.startsWith('j-'))).toEqual([]);
});

test('a command gets the event on its stdin and in its environment, which is the submitter’s, in the folder of the job', async () => {
  await host.start();
  process.env.OF_THE_SUBMITTER = 'a value';
  const command =
    'cat > stdin.json; echo "$OOMTUNE_EVENT $OOMTUNE_EVENT_JOB $OOMTUNE_EVENT_STATE $OF_THE_SUBMITTER" > said';
  const id = await submit('(printenv OOMTUNE_NOTIFY || echo unset) > seen', command);
  delete process.env.OF_THE_SUBMITTER;
  await until(settled, 30);
  expect(readFileSync(join(host.work, 'said'), 'utf8')).toBe(`ended ${id} succeeded a value\n`);
  const event = notification.parse(JSON.parse(readFileSync(join(host.work, 'stdin.json'), 'utf8')));
  expect(event).toMatchObject({ job: id, event: 'ended', state: 'succeeded' });
  expect(readFileSync(join(host.work, 'seen'), 'utf8')).toBe('unset\n'); // the job itself has nothing of it
});

test('what a job is called and says is never part of the command', async () => {
  await host.start();
  await submit('exit 4', 'echo "$OOMTUNE_EVENT_TEXT" > said', { name: '$(touch$IFShacked);`touch`', retries: 0 });
  await until(settled, 30);
  expect(readFileSync(join(host.work, 'said'), 'utf8')).toContain('$(touch$IFShacked);`touch` (j-');
  expect(existsSync(join(host.work, 'hacked'))).toBe(false);
});

test('one that cannot be told is tried again, told in the record and the log, and harms nothing', async () => {
  await host.start({ notifyLookMs: 500 });
  status = 500;
  const posted = await submit('true', url());
  const ran = await submit('true', 'echo it is broken >&2; exit 9');
  expect([(await host.ended(posted)).state, (await host.ended(ran)).state]).toEqual(['succeeded', 'succeeded']);
  await until(settled, 60);
  expect(got).toHaveLength(3);
  expect((await host.job(posted)).notification).toMatch(/^ended: 127\.0\.0\.1:\d+ answered with HTTP 500$/);
  expect((await host.job(ran)).notification).toBe('ended: the command ended with exit code 9: it is broken');
  expect(host.said).toContain('a notification could not be told');
});

test('a job that waits for long is told of once, also across a daemon that is killed', async () => {
  await host.start({ notifyLookMs: 300, notifyWaitMs: 500 });
  const first = await host.shell('sleep 600', { exclusive: true });
  await host.state(first, 'running');
  const id = await submit('true', url(), { after: [first] });
  await until(() => got.length === 1, 30);
  expect(got[0]?.event).toMatchObject({ event: 'waiting', job: id, state: 'queued' });
  expect(got[0]?.event.text).toMatch(/has waited for \d+s: waits for/);
  await until(async () => (await (await host.store()).notify.marks(id))?.waited === true);
  await host.kill();
  await host.start({ notifyLookMs: 300, notifyWaitMs: 500 });
  await sleep(1500);
  expect(got).toHaveLength(1);
  await (await host.store()).jobs.cancel(id);
  await until(() => got.length === 2, 30);
  expect(got[1]?.event).toMatchObject({ event: 'ended', state: 'cancelled' });
});

test('a wake and looks that come at once tell of an end once', async () => {
  const store = await host.store();
  const ids = await Promise.all(Array.from({ length: 3 }, () => submit('true', url())));
  for (const id of ids) await store.jobs.cancel(id);
  const told: string[] = [];
  const hands = {
    notify: async ({ job }: { job: string }) => {
      told.push(job);
      await sleep(30);
      return null;
    },
    environmentOf: () => ({ forget: () => {} }),
  } as unknown as Hands;
  const log = createLog('test');
  const notifier = new Notifier({ store, host: hostName(), handsFor: () => hands, waitMs: 1e9, log });
  for (let round = 0; round < 5; round += 1) {
    await Promise.all([notifier.look(), notifier.look(), ...ids.map((id) => notifier.ended(id)), notifier.look()]);
    await sleep(20);
  }
  await until(settled);
  expect(told.sort()).toEqual(ids.sort());
});

test('the end of a job while no daemon runs is told by the next one', async () => {
  await host.start();
  const id = await submit('sleep 2', url());
  await host.state(id, 'running');
  await host.kill();
  await sleep(2500);
  expect(got).toEqual([]);
  await host.start();
  await until(() => got.length === 1, 30);
  expect(got[0]?.event).toMatchObject({ event: 'ended', job: id, state: 'succeeded' });
});

test('a step down after a late out-of-memory error is told with both sizes', async () => {
  await host.start({ notifyLookMs: 300 });
  copyFileSync(join(FIXTURES, 'late.py'), join(host.work, 'late.py'));
  const id = await host.submit(
    [pythonWithTorch(), 'late.py'],
    { notify: true, budget: '38MiB', preset: 'auto', tune: true, timeoutSeconds: 60, retries: 3 },
    { ...process.env, OMP_NUM_THREADS: '1', OOMTUNE_NOTIFY: url() },
  );
  const job = await host.ended(id, 150);
  const runs = job.launches.filter(({ purpose }) => purpose === 'run');
  expect(runs.length).toBeGreaterThan(1);
  await until(settled, 30);
  const steps = got.filter(({ event }) => event.event === 'stepped_down');
  expect(steps.length).toBeGreaterThan(0);
  expect(steps[0]?.event.text).toContain(`ran out of memory at micro-batch ${runs[0]?.config?.micro_batch}`);
  expect(steps[0]?.event.text).toContain(`started again at micro-batch ${runs[1]?.config?.micro_batch}`);
  expect(got.at(-1)?.event.event).toBe('ended');
});

test('a job whose command is slow to be told keeps no other one from it', async () => {
  await host.start();
  writeFileSync(join(host.work, 'slow'), '');
  for (let n = 0; n < 3; n += 1) await submit('true', 'sleep 20 & wait');
  await submit('true', url());
  await until(() => got.length === 1, 15);
});
