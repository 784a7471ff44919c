import { cpSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { FIXTURES } from '../worker/harness.js';
import { done, placeOf, there } from './entry-points.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

it.skipIf(!there('bitsandbytes'))(
  '8-bit moments save what they promise, and what is saved is read without oomtune',
  async () => {
    const at = placeOf('bitsandbytes');
    cpSync(join(FIXTURES, 'moments.py'), join(at.cwd, 'moments.py'));
    const command = ['python', 'moments.py', 'saved.pt'];
    // Weights, gradients and two moments take 17 MiB each; the moments 4 each in 8 bits.
    const wish = ['--name', 'moments', '--device', 'cpu', '--budget', '72MiB', '--min-batch', '8', '--max-batch', '8'];
    const allow = ['--amp', 'off', '--allow', '8bit-optimizer'];
    const found = (await oomtune.json(['find-batch', ...wish, ...allow, '--', ...command], at)) as FindBatchReport;
    expect(found.config, JSON.stringify(found)).toMatchObject({ amp: 'off', optimizer_8bit: true });
    expect(found.notes.join(' ')).toContain("The optimizer's moments are held in 8 bits");
    expect(existsSync(join(at.cwd, 'saved.pt'))).toBe(false);
    const ran = await oomtune.call(['run', ...wish, ...allow, '--', ...command], at);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toContain('steps 8');
    // The script itself, alone, goes on from it, and with moments in 8 bits from what that has saved.
    const hook = {
      ...{ OOMTUNE_HOOK: 'apply', OOMTUNE_HOOK_KNOBS: 'optimizer_8bit', OOMTUNE_OPTIMIZER_8BIT: '1' },
      PYTHONPATH: ['inject', ''].map((folder) => join(ROOT, 'python', folder)).join(':'),
    };
    expect(done(command, at)).toContain('steps 16');
    expect(done(command, { ...at, env: { ...at.env, ...hook } })).toContain('steps 24');
    expect(done(command, at)).toContain('steps 32');
    // Without leave what was recorded with it is not used.
    const other = await oomtune.call(['run', ...wish, '--amp', 'off', '--', ...command], at);
    expect(other.code, other.stderr).toBe(3);
  },
  600_000,
);
