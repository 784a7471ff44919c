import { cpSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { PYTHON, ROOT } from '../cli/oomtune.js';
import { blocks, Reader } from './page.js';

/**
 * The guides' commands for entry points that cannot be installed here, run on stand-ins for these: scripts of plain torch
 * with the same flags and files (test/fixtures/frameworks). What is theirs alone is not shown by it.
 */
const STAND_INS = join(ROOT, 'test', 'fixtures', 'frameworks');
vi.setConfig({ testTimeout: 300_000 }); // a page is many commands
const reader = new Reader();
const folder = (name: string): string => join(reader.work, name);

/** For two ranks instead of four, no GPU, and a few sizes. */
const SMALLER: [RegExp, string][] = [
  [/\s+#.*$/, ''],
  [/--gpus \d+ /, ''],
  [/(--nproc[-_]per[-_]node[ =])\d+/, '$12'],
  [/--effective-batch \d+/, '--effective-batch 8'],
  [/--min-batch \d+/, '--min-batch 2'],
  [/--budget \S+ /, ''],
  [/^oomtune (\S+) /, 'oomtune $1 --device cpu --budget 150MiB --max-batch 2 '],
];

interface Seen {
  batch: number;
  accumulation?: number;
  RANK: string | null;
}

/** The calls of oomtune on a page. */
const calls = (page: string): string[] =>
  blocks(`docs/guides/${page}.md`)
    .flatMap((block) => block.split('\n'))
    .filter((line) => line.startsWith('oomtune '));

/** Runs one line beside the stand-ins of `where`; returns what reached the script, launch by launch. */
async function follow(line: string, where: string): Promise<Seen[]> {
  rmSync(join(folder(where), 'seen'), { force: true });
  await reader.shell(
    SMALLER.reduce((text, [long, short]) => text.replace(long, short), line),
    { cwd: folder(where) },
  );
  const seen = join(folder(where), 'seen');
  return existsSync(seen)
    ? readFileSync(seen, 'utf8')
        .trim()
        .split('\n')
        .map((one) => JSON.parse(one))
    : [];
}

/** The configuration that was recorded last. */
async function recorded(): Promise<{ micro_batch: number; accumulation: number; world_size: number }> {
  const { recommendations } = (await reader.oomtune.json(['recommend'])) as { recommendations: never[] };
  return recommendations[0] as never;
}

beforeAll(() => {
  for (const name of ['hf-trainer', 'timm', 'nanogpt', 'lightning', 'torchrun', 'placeholders', 'consoles']) {
    cpSync(join(STAND_INS, name), folder(name), { recursive: true });
    cpSync(join(STAND_INS, 'plain.py'), join(folder(name), 'plain.py'));
  }
  const launcher = readFileSync(join(STAND_INS, 'torchrun', 'torchrun.py'), 'utf8');
  reader.program('torchrun', `#!${PYTHON}\n${launcher}`);
  for (const name of ['yolo', 'axolotl']) {
    reader.program(name, readFileSync(join(STAND_INS, 'consoles', name), 'utf8'));
  }
});
afterAll(() => reader.close());

describe('a guide’s commands reach a script with the flags that it is about', () => {
  const PRESETS: [page: string, script: string][] = [
    ['hf-trainer', 'run_clm.py'],
    ['timm', 'train.py'],
    ['nanogpt', 'train.py'],
    ['lightning', 'main.py'],
  ];

  it.each(PRESETS)('%s', async (page, script) => {
    const lines = [...calls(page), ...(page === 'hf-trainer' ? calls('presets') : [])].filter((line) =>
      line.includes(` ${script}`),
    );
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      const seen = await follow(line, page);
      const config = await recorded();
      // Tried with other sizes too, and at last with what is recorded (find-batch) or keeps the effective batch (run)
      expect(seen.length, line).toBeGreaterThan(1);
      const last = seen.at(-1) as Seen;
      if (line.startsWith('oomtune find-batch')) {
        expect(
          seen.map(({ batch }) => batch),
          line,
        ).toContain(config.micro_batch);
      } else if (page === 'timm') {
        // Its batches stay: the hook cuts them.
        expect(new Set(seen.map(({ batch, accumulation }) => `${batch} x ${accumulation}`)), line).toEqual(
          new Set(['256 x 1']),
        );
        expect(config.accumulation, line).toBeGreaterThan(1);
      } else {
        expect(last.batch, line).toBeLessThanOrEqual(2);
        expect((last.accumulation ?? 0) * last.batch, line).toBeGreaterThanOrEqual(8);
      }
    }
  });

  it.each([
    ['hf-trainer', 'finetune.py', 8],
    ['lightning', 'train.py', 16],
  ])('%s: %s has none, and is left to the hook', async (page, script, own) => {
    const lines = calls(page).filter((line) => line.includes(` ${script}`));
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      const seen = await follow(line, page);
      expect(new Set(seen.map(({ batch }) => batch)), line).toEqual(new Set([own]));
      expect((await recorded()).micro_batch, line).toBeLessThanOrEqual(2);
    }
  });

  it('torchrun, with a process for each rank', async () => {
    const lines = calls('torchrun');
    const severalMachines = lines.filter((line) => line.startsWith('oomtune recommend '));
    expect([lines.length, severalMachines.length]).toEqual([5, 1]);
    for (const line of lines.filter((line) => !severalMachines.includes(line))) {
      const seen = await follow(line, 'torchrun');
      expect(new Set(seen.map(({ RANK }) => RANK)), line).toEqual(new Set(['0', '1']));
      expect((await recorded()).world_size, line).toBe(2);
    }
    const { stdout } = await reader.shell(severalMachines[0] as string, { cwd: folder('torchrun') });
    expect(stdout).toMatch(/torchrun --nnodes 2 --nproc-per-node 4 train.py --batch-size \d+ --accumulation \d+/);
  });

  it('placeholders, in Python and not', async () => {
    const lines = [...calls('presets'), ...calls('frameworks')].filter((line) => line.includes('{micro_batch}'));
    expect(lines.length).toBe(3);
    for (const line of lines) {
      const seen = await follow(line, 'placeholders');
      expect([...new Set(seen.map(({ batch }) => batch))], line).toEqual([1, 2]);
    }
  });

  it('console scripts, by words and by a file', async () => {
    const lines = calls('presets').filter((line) => / -- (yolo|axolotl) /.test(line));
    expect(lines.length).toBe(2);
    for (const line of lines) {
      const seen = await follow(line, 'consoles');
      expect([...new Set(seen.map(({ batch }) => batch))], line).toEqual([1, 2]);
    }
    expect(readFileSync(join(folder('consoles'), 'config.yml'), 'utf8')).toContain('micro_batch_size: 4 # samples');
  });

  it('those of the page on all frameworks are the pages’ own', () => {
    const plain = (line: string): string => line.replace(/\s+#.*$/, '');
    const lines = calls('frameworks').filter((line) => !line.includes('{'));
    const known = ['hf-trainer', 'timm', 'nanogpt', 'lightning', 'torchrun'].flatMap(calls).map(plain);
    expect(lines.length).toBe(5);
    for (const line of lines) expect(known).toContain(plain(line));
  });
});
