import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { PYTHON, ROOT } from '../cli/oomtune.js';
import { until } from '../store/home.js';
import { FIXTURES } from '../worker/harness.js';
import { blocks, PAGES, Reader } from './page.js';

vi.setConfig({ testTimeout: 300_000 }); // a page is many commands
const reader = new Reader();

/** What a line becomes where there is no GPU and no hour to spend. Each leaves the command itself as it is written. */
const SMALLER: [RegExp, string][] = [
  [/^(npm|pip) .*$/gm, ''], // prepares the machine: test/package/install.test.ts does what the README says
  [/^ssh .*$/gm, ''], // another machine
  [/^.*XREAD BLOCK.*$/gm, ''], // waits for the next event
  [/^export OOMTUNE_REDIS_URL=.*$/gm, ''], // a server of the reader's own
  [/^oomtune daemon run .*$/gm, 'timeout --signal INT 5 oomtune daemon run || test $? = 124'], // for good
  [/^\$ /gm, ''],
  [/--budget \S+/g, '--device cpu --budget 120MiB --max-batch 4'],
  [/--effective-batch \d+/g, '--device cpu --budget 120MiB --effective-batch 8'],
];

/** A page's blocks as one script. */
async function follow(page: string): Promise<string> {
  const script = SMALLER.reduce((text, [long, short]) => text.replace(long, short), blocks(page).join('\n'));
  return (await reader.shell(script)).stdout;
}

beforeAll(async () => {
  const script = readFileSync(join(ROOT, 'examples', 'transformer.py'), 'utf8');
  reader.file('train.py', script.replace('samples=512', 'samples=32')); // a guide is no long training
  reader.file('evaluate.py', 'print("accuracy 1.0")\n');
  reader.file('train.log', 'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n');
  const args = ['--name', 'quickstart', '--device', 'cpu', '--budget', '300MiB', '--max-batch', '4'];
  const command = ['find-batch', ...args, '--', PYTHON, 'train.py'];
  const { code, stderr } = await reader.oomtune.call(command, { cwd: reader.work });
  expect(stderr).toContain('fit');
  expect(code).toBe(0);
});
beforeEach(async () => {
  await reader.oomtune.call(['daemon', 'stop', '--kill']); // each page starts its own
});
afterAll(() => reader.close());

/**
 * Followed elsewhere: on stand-ins for frameworks (standins.test.ts), on a cluster (clusters.test.ts), by several users (test/daemon/system), with a
 * current torch (test/frameworks/estimate.test.ts).
 */
const ELSEWHERE = [
  'frameworks',
  'hf-trainer',
  'lightning',
  'nanogpt',
  'presets',
  'timm',
  'torchrun',
  'clusters',
  'a-server-for-a-lab',
  'estimate',
];

it('every page with something for a shell is followed by a test', () => {
  const own = [...readFileSync(import.meta.filename, 'utf8').matchAll(/^ {2}it\('(\S+\.md)/gm)].map(([, page]) => page);
  const elsewhere = ELSEWHERE.map((name) => `docs/guides/${name}.md`);
  const withCommands = PAGES.filter((page) => blocks(page).length > 0);
  expect([...new Set([...own, ...elsewhere])].sort()).toEqual(withCommands.sort());
});

describe('a page works as it is written', () => {
  it('README.md', async () => {
    const said = await follow('README.md');
    expect(said).toMatch(/recommended +micro-batch \d+/);
    expect(said).toContain('micro_batch\n');
    expect(said).toContain('device_oom');
    expect(said).toMatch(/^\S*python\S* train\.py --batch-size \d+$/m);
  });

  it('docs/guides/first-job.md', async () => {
    const said = await follow('docs/guides/first-job.md');
    expect(said).toMatch(/recommended +micro-batch \d+/);
    expect(said).toContain('train.py --batch-size');
    expect(said).toContain('accuracy 1.0');
    expect(said).toContain('device_oom');
  });

  it('docs/guides/recommendations.md', async () => {
    const said = await follow('docs/guides/recommendations.md');
    expect(said).toContain('quickstart:cpu:300m:1x\n');
    expect(said).toMatch(/^\S*python\S* train\.py --batch-size \d+ --accumulation 1$/m);
  });

  it('docs/reference/redis.md', async () => {
    expect(await follow('docs/reference/redis.md')).toBe('\n'); // its recommendation is of another machine
  });

  it('docs/guides/budgets.md', async () => {
    await follow('docs/guides/budgets.md');
    const report = JSON.parse(readFileSync(join(reader.work, 'report.json'), 'utf8'));
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, refused: 0 });
    expect(report.devices[0].budget_bytes).toBe(120 * 2 ** 20);
  });

  it('docs/guides/notifications.md', async () => {
    await follow('docs/guides/notifications.md');
    const told = join(reader.work, 'told.txt');
    await until(() => existsSync(told), 30);
    expect(readFileSync(told, 'utf8')).toMatch(/^evaluate\S* \(j-\w+\) succeeded after /);
  });

  it('docs/guides/diagnosis.md', async () => {
    const said = await follow('docs/guides/diagnosis.md');
    expect(said.match(/device_oom/g)?.length).toBeGreaterThan(1);
    expect(said).toMatch(/^ok: /m);
  });

  it('docs/guides/clusters.md: what is read out of a report', async () => {
    await reader.shell(
      'oomtune run --device cpu --budget 8MiB --no-tune --report report.json -- python train.py || test $? = 1',
    );
    const line = blocks('docs/guides/clusters.md').find((block) => block.startsWith('jq ')) as string;
    expect((await reader.shell(line)).stdout).toMatch(/^failed\ndevice_oom\n.*can't allocate memory/);
  });

  it('docs/guides/longest-sequence.md', async () => {
    reader.file('long/train.py', readFileSync(join(FIXTURES, 'lengths.py'), 'utf8'));
    const script = blocks('docs/guides/longest-sequence.md')
      .join('\n')
      .replace(/--budget \S+/g, '--device cpu --budget 200MiB');
    const { stdout, stderr } = await reader.shell(script, { cwd: join(reader.work, 'long') });
    expect(stdout).toMatch(/seq_len \d+/);
    expect(stderr).toMatch(/seq_len/);
  });

  it('docs/guides/sharing.md', async () => {
    const said = await follow('docs/guides/sharing.md');
    expect(said).toMatch(/small +\w+ /);
    expect(said).toMatch(/other: \S*python\S* train\.py --lr 0\.1/);
  });

  it('docs/guides/dashboard.md', async () => {
    expect(await follow('docs/guides/dashboard.md')).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/#token=\S{43}$/m);
  });

  it('docs/guides/deploy.md', async () => {
    const said = await follow('docs/guides/deploy.md');
    expect(said).toMatch(/^running +true$/m);
    expect(said).toMatch(/^j-\w+$/m);
    const { stdout } = await reader.shell('oomtune daemon stop; oomtune status --json @');
    expect(JSON.parse(stdout.slice(stdout.indexOf('{"schema"'))).jobs[0].state).toBe('queued'); // for a host with two such GPUs
  });
});
