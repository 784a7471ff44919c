import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';

const run = promisify(execFile);

describe('oomtune.recommended() in Python', () => {
  const oomtune = new Oomtune();
  let found: Record<string, unknown>;
  let searched: string;

  /** The fields that each way of reading has to give. */
  const FIELDS = ['key', 'micro_batch', 'accumulation', 'effective_batch', 'amp', 'checkpointing', 'max_micro_batch'];
  const LASTING = FIELDS.filter((name) => name !== 'max_micro_batch');

  async function recommended(how: string): Promise<Record<string, unknown>> {
    const program = `import json, oomtune; r = oomtune.recommended("mlp"${how}); print(json.dumps({n: getattr(r, n) for n in ${JSON.stringify([...FIELDS, 'peak_bytes', 'budget_bytes', 'gpu_model'])}}))`;
    const env = { ...oomtune.env, PYTHONPATH: join(ROOT, 'python') };
    return JSON.parse((await run(PYTHON, ['-c', program], { env, cwd: oomtune.home })).stdout);
  }

  const pick = (from: Record<string, unknown>, names: string[]) =>
    Object.fromEntries(names.map((name) => [name, from[name]]));

  beforeAll(async () => {
    const script = join(ROOT, 'test', 'fixtures', 'package', 'tiny.py');
    const args = ['--name', 'mlp', '--device', 'cpu', '--budget', '300MiB', '--max-batch', '4', '--json'];
    const { stdout, code, stderr } = await oomtune.call(['find-batch', ...args, '--', PYTHON, script]);
    expect(code, stderr).toBe(0);
    searched = stdout;
    const told = (await oomtune.json(['recommend', 'mlp'])) as { recommendations: (typeof found)[] };
    found = told.recommendations[0] as typeof found;
  });
  afterAll(() => oomtune.close());

  it('reads what a search recorded', async () => {
    const names = [...FIELDS, 'peak_bytes', 'budget_bytes', 'gpu_model'];
    expect(await recommended('')).toEqual(pick(found, names));
  });

  it('reads every kind of file that the program writes', async () => {
    const texts = {
      'search.json': searched,
      'list.json': (await oomtune.call(['recommend', '--json'])).stdout,
      'format.json': (await oomtune.call(['recommend', 'mlp', '--format', 'json'])).stdout,
      'document.json': (await oomtune.call(['recommend', 'mlp', '--format', 'json', '--json'])).stdout,
    };
    for (const [name, text] of Object.entries(texts)) {
      const file = join(oomtune.home, name);
      writeFileSync(file, text);
      expect(pick(await recommended(`, file=${JSON.stringify(file)}`), LASTING), name).toEqual(pick(found, LASTING));
    }
  });

  it('has the program start its Redis where that does not run', async () => {
    await oomtune.call(['redis', 'stop']);
    expect(pick(await recommended(''), FIELDS)).toEqual(pick(found, FIELDS));
  });
});
