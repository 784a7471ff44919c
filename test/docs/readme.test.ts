import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../cli/oomtune.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-readme-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the README', () => {
  it('shows the figures that were measured', () => {
    execFileSync(process.execPath, [join(ROOT, 'scripts', 'figures.mjs'), '--check'], { stdio: 'pipe' });
  });

  it('takes a recorded search as its terminal ended up showing it, dated, with its machine', () => {
    mkdirSync(join(folder, 'scripts'));
    cpSync(join(ROOT, 'scripts'), join(folder, 'scripts'), { recursive: true });
    writeFileSync(join(folder, 'README.md'), 'before\n<!-- picture gpu -->\nold\n<!-- /picture -->\nafter\n');
    const lines = [
      '$ oomtune find-batch -- python train.py',
      '\u001b[32m✓\u001b[0m half\r✓ whole\r',
      'x'.repeat(200),
      '',
    ];
    writeFileSync(join(folder, 'recording'), lines.join('\n'));
    const script = join(folder, 'scripts', 'readme-picture.mjs');
    const call = (...more: string[]) =>
      spawnSync(process.execPath, [script, '--recorded', join(folder, 'recording'), ...more], { encoding: 'utf8' });
    const { status, stderr } = call('--machine', 'NVIDIA H200, oomtune 0.1.0', '--date', '2026-01-31');
    expect(status, stderr).toBe(0);
    const readme = readFileSync(join(folder, 'README.md'), 'utf8');
    expect(readme).toBe(
      [
        ...['before', '<!-- picture gpu -->', '', '```text', '$ oomtune find-batch -- python train.py', '✓ whole'],
        ...[`${'x'.repeat(117)}…`, '```', '', '<sub>Recorded 2026-01-31: NVIDIA H200, oomtune 0.1.0.</sub>', ''],
        ...['<!-- /picture -->', 'after', ''],
      ].join('\n'),
    );
    expect(call('--machine', 'NVIDIA H200').status).not.toBe(0); // when it was is part of it
  });
});
