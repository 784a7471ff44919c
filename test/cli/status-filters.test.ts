import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { job, options } from '../store/samples.js';
import { Oomtune } from './oomtune.js';

const oomtune = new Oomtune();
let store: Store;
const at = (minute: number): string => `2026-11-01T10:${String(minute).padStart(2, '0')}:00.000Z`;

beforeAll(async () => {
  process.env.OOMTUNE_HOME = oomtune.home;
  store = await openStore({});
  const jobs = [
    job({ name: 'bert-2', submitted_at: at(1), state: 'held', reason: 'held by its owner' }),
    job({
      name: 'bert-10',
      submitted_at: at(2),
      owner: 'bob',
      options: options({ priority: 5, tags: ['paper/table-2', 'ablation'] }),
    }),
    job({
      name: 'resnet',
      submitted_at: at(3),
      state: 'running',
      host: 'rack-a',
      devices: ['cuda:1'],
      started_at: at(4),
      reason: null,
    }),
  ];
  for (const one of jobs) await store.jobs.create(one);
  for (let n = 0; n < 25; n += 1) {
    const ended = job({ name: `old-${n}`, submitted_at: at(10 + n), command: ['sh', '-c', 'echo "a, b"\n'] });
    await store.jobs.create(ended);
    await store.jobs.patch(ended.job, { state: n === 3 ? 'failed' : 'succeeded' });
  }
});
afterAll(async () => {
  await store.close();
  await oomtune.close();
});

const names = async (...args: string[]): Promise<string[]> => {
  const { jobs } = (await oomtune.json(['status', ...args])) as { jobs: { name: string }[] };
  return jobs.map(({ name }) => name);
};

describe('status', () => {
  it('shows the jobs that are asked for by state, name, owner, host, device and tag', async () => {
    expect(await names('--state', 'waiting')).toEqual(['bert-2', 'bert-10']);
    expect(await names('--state', 'held,running')).toEqual(['bert-2', 'resnet']);
    expect(await names('--name', 'bert-*')).toEqual(['bert-2', 'bert-10']);
    expect(await names('--name', 'resnet')).toEqual(['resnet']);
    expect(await names('--user', 'bob')).toEqual(['bert-10']);
    expect(await names('--host', 'rack-a')).toEqual(['resnet']);
    expect(await names('--device', 'cuda')).toEqual(['resnet']);
    expect(await names('--device', 'cuda:0')).toEqual([]);
    expect(await names('--tag', 'ablation')).toEqual(['bert-10']);
    expect(await names('--tag', 'ablation', '--state', 'held')).toEqual([]);
    const { stdout } = await oomtune.call(['status', '--tag', 'none-has-it']);
    expect(stdout).toBe('No such jobs. `oomtune status` shows all.\n');
  });

  it('finds an ended job however many ended after it', async () => {
    expect(await names()).not.toContain('old-3');
    expect(await names('--state', 'failed')).toEqual(['old-3']);
    expect(await names('--name', 'old-*')).toHaveLength(20);
    expect(await names('--name', 'old-*', '--limit', '2')).toEqual(['old-23', 'old-24']);
  });

  it('sorts, with numbers in names by their value, and the other way round', async () => {
    const some = ['--state', 'waiting,active'];
    expect(await names(...some, '--sort', 'name')).toEqual(['bert-2', 'bert-10', 'resnet']);
    expect(await names(...some, '--sort', '-name')).toEqual(['resnet', 'bert-10', 'bert-2']);
    expect(await names(...some, '--sort', '-priority')).toEqual(['bert-10', 'bert-2', 'resnet']);
    expect(await names(...some, '--sort', '-submitted')).toEqual(['resnet', 'bert-10', 'bert-2']);
    expect((await names(...some, '--sort', 'device'))[0]).toBe('resnet'); // what has none stands last, either way
    expect((await names(...some, '--sort', '-device'))[0]).toBe('resnet');
  });

  it('writes comma-separated values that a spreadsheet reads', async () => {
    const { stdout } = await oomtune.call(['status', '--csv', '--tag', 'ablation']);
    const [header, line, rest] = stdout.split('\r\n');
    expect(header).toMatch(/^job,name,owner,state,reason,/);
    expect(line).toMatch(/^j-\w+,bert-10,bob,queued,waits for a daemon,,,,5,paper\/table-2 ablation,/);
    expect(rest).toBe('');
    const quoted = await oomtune.call(['status', '--csv', '--name', 'old-24']);
    expect(quoted.stdout.trimEnd()).toMatch(/,"sh -c 'echo ""a, b""\s*'"$/);
    expect(quoted.stdout.match(/\r\n/g)).toHaveLength(2);
  });

  it.each([
    ['--state', 'asleep'],
    ['--sort', 'colour'],
    ['--csv', '--watch'],
    ['--csv', '--json'],
    ['--users', '--sort', 'name'],
  ])('refuses %s %s', async (...args) => {
    expect((await oomtune.call(['status', ...args])).code).toBe(2);
  });
});
