import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { startRedis } from '../store/home.js';
import { Oomtune, PYTHON } from './oomtune.js';

const oomtune = new Oomtune();
const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});
afterAll(() => oomtune.close());

/** A command of Redis's own, beside oomtune. */
const cli = (port: number, ...words: string[]): string =>
  execFileSync('redis-cli', ['-p', String(port), '--no-auth-warning', ...words], { encoding: 'utf8' });

/** Takes its batch size from a flag; 4 MiB of activations for 64 samples. */
const sized = join(oomtune.home, 'sized.py');
writeFileSync(
  sized,
  `
import argparse, os, time, torch
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument('--batch-size', type=int, default=64)
parser.add_argument('--wait', action='store_true')
given = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
print('begun', flush=True)
while given.wait and not os.path.exists('go'): time.sleep(0.05)
for (x,) in DataLoader(TensorDataset(torch.randn(8192, 64)), batch_size=given.batch_size):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    time.sleep(0.05)
print('done', flush=True)
`,
);

describe('a Redis that refuses while something is found', () => {
  it('a search that it refuses to record is recorded as soon as it takes writes', async () => {
    const { port, stop } = await startRedis();
    stops.push(stop);
    const words = ['find-batch', '--json', '--redis', `redis://127.0.0.1:${port}`, '--device', 'cpu'];
    const search = oomtune.start([...words, '--budget', '60MiB', '--', PYTHON, sized]);
    await vi.waitFor(() => expect(search.said()).toContain('fit'), { timeout: 60_000, interval: 50 });
    cli(port, 'REPLICAOF', '127.0.0.1', '1');
    await vi.waitFor(() => expect(search.said()).toContain('it is a read-only replica. What is to be'), {
      timeout: 60_000,
      interval: 50,
    });
    expect(search.said()).not.toMatch(/user_script|READONLY/);
    await delay(2000);
    cli(port, 'REPLICAOF', 'NO', 'ONE');
    const { code, stdout, stderr } = await search.ended;
    expect(code, stderr).toBe(0);
    const { key, status } = JSON.parse(stdout) as { key: string; status: string };
    expect(status).toBe('found');
    expect(cli(port, 'EXISTS', `{oomtune}:config:${key}`).trim()).toBe('1');
  }, 120_000);

  it('a run that has run out of memory is searched and started where it asks for a password meanwhile', async () => {
    const { port, stop } = await startRedis();
    stops.push(stop);
    const cwd = join(oomtune.home, 'password');
    mkdirSync(cwd);
    const words = ['run', '--redis', `redis://127.0.0.1:${port}`, '--device', 'cpu', '--budget', '100MiB', '--'];
    const run = oomtune.start([...words, PYTHON, sized, '--wait', '--batch-size', '8192'], { cwd });
    await vi.waitFor(() => expect(run.printed()).toContain('begun'), { timeout: 60_000, interval: 50 });
    cli(port, 'CONFIG', 'SET', 'requirepass', 'word');
    for (const type of ['normal', 'pubsub']) cli(port, '-a', 'word', 'CLIENT', 'KILL', 'TYPE', type);
    writeFileSync(join(cwd, 'go'), '');
    await vi.waitFor(() => expect(run.said()).toContain('it asks for a password'), { timeout: 60_000, interval: 50 });
    expect(run.said()).toContain('Out of memory as it stands');
    await delay(1000);
    cli(port, '-a', 'word', 'CONFIG', 'SET', 'requirepass', '');
    const { code, stdout, stderr } = await run.ended;
    expect(code, stderr).toBe(0);
    expect(stdout).toContain('done');
  }, 120_000);
});

describe('a Redis that refuses after a job was queued', () => {
  it('is no failure of submit, which has told the one document by then', async () => {
    const { port, stop } = await startRedis();
    stops.push(stop);
    const env = { OOMTUNE_REDIS_URL: `redis://127.0.0.1:${port}` };
    cli(port, 'SET', '{oomtune}:hosts', 'x');
    const { code, stdout, stderr } = await oomtune.call(['submit', '--json', '--device', 'cpu', '--', 'true'], { env });
    expect(code, stderr).toBe(0);
    const { job } = JSON.parse(stdout) as { job: string };
    expect(cli(port, 'HGET', `{oomtune}:job:${job}`, 'state').trim()).toBe('queued');
    expect(stderr).toMatch(/note: It is queued, but .*something else \(\{oomtune\}:hosts\)\. Delete the key/);
  });
});

describe('verbs that follow, and a Redis that refuses', () => {
  const word = ['-a', 'word'];
  it.each([
    {
      how: 'as the user lost its rights',
      refuse: (port: number) => void cli(port, 'ACL', 'SETUSER', 'reader', '-@all', '+info', '+ping'),
      allow: (port: number) => void cli(port, 'ACL', 'SETUSER', 'reader', '+@all'),
      user: 'reader:pw@',
      says: ['its user may not do that', '+@all -@dangerous'],
      verbs: [
        ['logs', '-f'],
        ['status', '-w'],
      ],
    },
    {
      how: 'as it asks for a password',
      refuse(port: number) {
        cli(port, 'CONFIG', 'SET', 'requirepass', 'word');
        for (const type of ['normal', 'pubsub']) cli(port, ...word, 'CLIENT', 'KILL', 'TYPE', type);
      },
      allow: (port: number) => void cli(port, ...word, 'CONFIG', 'SET', 'requirepass', ''),
      user: '',
      says: ['it asks for a password', 'redis://:password@host'],
      verbs: [['logs', '-f'], ['status', '-w'], ['wait']],
    },
  ])(
    'wait until it does not: $how',
    async ({ how, refuse, allow, user, says, verbs }) => {
      const { port, stop } = await startRedis();
      cli(port, 'ACL', 'SETUSER', 'reader', 'on', '>pw', '~*', '&*', '+@all');
      const daemon = { OOMTUNE_REDIS_URL: `redis://127.0.0.1:${port}` };
      const cwd = join(oomtune.home, how.replaceAll(' ', '-'));
      mkdirSync(cwd);
      stops.push(async () => {
        await oomtune.call(['daemon', 'stop'], { env: daemon });
        await stop();
      });
      expect((await oomtune.call(['daemon', 'start', '--http-port', '0'], { env: daemon })).code).toBe(0);
      const shell = 'while [ ! -e go ]; do sleep 0.1; done; echo written';
      const sent = await oomtune.call(['submit', '--device', 'cpu', '--', 'sh', '-c', shell], {
        cwd,
        env: daemon,
      });
      const id = sent.stdout.trim();
      await vi.waitFor(
        async () => expect((await oomtune.call(['status', id], { env: daemon })).stdout).toContain('running'),
        { timeout: 30_000, interval: 500 },
      );
      const env = { OOMTUNE_REDIS_URL: `redis://${user}127.0.0.1:${port}` };
      const followers = verbs.map((verb) => ({ verb, ...oomtune.start([...verb, id], { env }) }));
      await delay(3000);
      refuse(port);
      for (const { verb, said } of followers)
        await vi.waitFor(() => expect(said(), verb.join(' ')).toContain(says[0]), { timeout: 40_000, interval: 100 });
      await delay(2000);
      allow(port);
      writeFileSync(join(cwd, 'go'), '');
      for (const { verb, child, ended, printed } of followers) {
        if (verb[0] === 'status') {
          await vi.waitFor(() => expect(printed()).toContain('succeeded'), { timeout: 40_000, interval: 100 });
          child.kill('SIGINT');
        }
        const { code, stdout, stderr } = await ended;
        expect(code, `${verb.join(' ')}: ${stderr}`).toBe(verb[0] === 'status' ? 130 : 0);
        expect(stderr).toContain(says[1]);
        if (verb[0] === 'logs') expect(stdout).toContain('written');
      }
    },
    150_000,
  );
});
