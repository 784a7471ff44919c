import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { openStore } from '../../src/store/index.js';
import { recommendation } from '../store/samples.js';
import { error, status, submitted } from './contract.js';
import { Oomtune } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const PLAIN = ['--device', 'cpu', '--preset', 'none'];

async function submit(...args: string[]): Promise<string> {
  return submitted.parse(await oomtune.json(['submit', ...PLAIN, ...args])).job;
}

async function look(name: string) {
  return (status.parse(await oomtune.json(['status', name])).jobs as { job: string; name: string; state: string }[])[0];
}

beforeAll(async () => {
  expect((await oomtune.call(['daemon', 'start'])).code).toBe(0);
});

describe('a name is as good as an id', () => {
  it('in every verb that takes a job', async () => {
    const job = await submit('--name', 'bert', '--', 'sh', '-c', 'echo begun; sleep 304');
    await vi.waitFor(async () => expect((await look('bert'))?.state).toBe('running'), { timeout: 60_000 });
    const printed = async () => expect((await oomtune.call(['logs', 'bert'])).stdout).toBe('begun\n');
    await vi.waitFor(printed, { timeout: 60_000 });
    expect((await look('bert'))?.job).toBe(job);
    expect((await oomtune.call(['explain', 'bert'])).stdout).toContain(job);
    const held = await submit('--name', 'later', '--after', 'bert', '--', 'true');
    expect((await oomtune.json(['status', held])) as object).toMatchObject({ jobs: [{ state: 'queued' }] });
    expect((await oomtune.call(['hold', 'later'])).stderr).toBe(`${held}  held\n`);
    expect((await oomtune.call(['release', 'later'])).stderr).toBe(`${held}  queued\n`);
    expect((await oomtune.call(['cancel', 'bert'])).stderr).toBe(`${job}  cancelled\n`);
    expect((await oomtune.call(['wait', 'bert'])).code).toBe(4);
    expect((await oomtune.call(['retry', 'bert'])).stdout).toBe(`${job}\n`);
    expect((await oomtune.call(['cancel', 'later', 'bert'])).code).toBe(0);
  });

  it('means the latest job that has it, and says so on stderr', async () => {
    await submit('--name', 'twice', '--', 'echo', 'first');
    await oomtune.call(['wait', 'twice']);
    const second = await submit('--name', 'twice', '--', 'echo', 'second');
    await oomtune.call(['wait', second]);
    const { stdout, stderr } = await oomtune.call(['logs', 'twice']);
    expect(stdout).toBe('second\n');
    expect(stderr).toMatch(`2 jobs are called twice; ${second} is the latest (succeeded, submitted `);
    const document = await oomtune.call(['status', '--json', 'twice']);
    expect(JSON.parse(document.stdout).jobs).toMatchObject([{ job: second }]);
    expect(document.stderr).toContain(second);
    expect((await oomtune.call(['logs', second])).stderr).toBe('');
  });

  it('loses to an id, and to the beginning of one', async () => {
    const job = await submit('--name', 'plain', '--', 'echo', 'mine');
    await submit('--name', job.slice(0, 6), '--', 'echo', 'not mine');
    await submit('--name', job, '--', 'echo', 'nor this');
    await oomtune.call(['wait', job]);
    for (const id of [job, job.slice(0, 6)]) expect((await oomtune.call(['logs', id])).stdout).toBe('mine\n');
  });

  it.each([
    ['logs', 'brt', 'bert'],
    ['wait', 'twicee', 'twice'],
    ['cancel', 'Bert', 'bert'],
    ['explain', 'bertt', 'bert'],
  ])('%s %s asks for the one that was probably meant', async (verb, wrong, right) => {
    const { code, stdout } = await oomtune.call([verb, '--json', wrong]);
    expect(code).toBe(6);
    const told = error.parse(JSON.parse(stdout)).error;
    expect(told.code).toBe('OOMTUNE_NO_SUCH_JOB');
    expect(told.remedy).toContain(`Did you mean \`${right}\`?`);
  });

  it('submit --after asks, too', async () => {
    const { code, stderr } = await oomtune.call(['submit', ...PLAIN, '--after', 'twise', '--', 'true']);
    expect(code).toBe(6);
    expect(stderr).toContain('There is no job "twise".');
    expect(stderr).toContain('Did you mean `twice`?');
  });
});

it('the automatic name is the stem of the script, before the job starts and after', async () => {
  mkdirSync(join(oomtune.home, 'src'), { recursive: true });
  writeFileSync(join(oomtune.home, 'src', 'prepare.py'), 'print("prepared")\n');
  const job = await submit('--', 'env', 'A=1', 'python3', '-u', 'src/prepare.py', '--lr', '1');
  const before = await look(job);
  expect(before?.name).toBe('prepare');
  expect((await oomtune.call(['wait', 'prepare'])).code).toBe(0);
  expect((await look('prepare'))?.name).toBe('prepare');
});

describe('recorded configurations', () => {
  beforeAll(async () => {
    process.env.OOMTUNE_HOME = oomtune.home;
    const store = await openStore();
    for (const name of ['train-1a2b3c4d', 'alone']) {
      await store.recommendations.put(recommendation({ key: `${name}:cpu:1g:1x`, name }), null);
    }
    await store.close();
  });

  it('are found by the stem of a script', async () => {
    const told = (await oomtune.json(['recommend', 'train'])) as { recommendations: { name: string }[] };
    expect(told.recommendations.map(({ name }) => name)).toEqual(['train-1a2b3c4d']);
    expect((await oomtune.call(['explain', 'train'])).stdout).toContain('train-1a2b3c4d');
  });

  it('are asked for by the nearest name', async () => {
    const { code, stderr } = await oomtune.call(['recommend', 'tarin']);
    expect(code).toBe(6);
    expect(stderr).toContain('Did you mean `train`?');
  });

  it('that no job made are told from jobs', async () => {
    const { code, stderr } = await oomtune.call(['logs', 'alone']);
    expect(code).toBe(6);
    expect(stderr).toContain('There is no job "alone", only a recorded configuration.');
    expect(stderr).toContain('`oomtune explain alone`');
  });

  it('and jobs are completed by their names', async () => {
    expect((await oomtune.call(['__complete', 'names'])).stdout).toMatch(/^train-1a2b3c4d\t/m);
    expect((await oomtune.call(['__complete', 'jobs'])).stdout).toMatch(/^twice\tj-/m);
  });
});
