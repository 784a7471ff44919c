import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findPromtool } from '../../scripts/setup/promtool.mjs';

const found: string | null = findPromtool();
if (found === null) {
  process.stderr.write(
    'promtool is missing: rules and metrics are not checked with it. `npm test` fetches it where apt-get is.\n',
  );
}

/** Prometheus's own checker is not here, and could not be had. */
export const noPromtool = found === null;

/** Runs promtool with these files in its folder; returns its exit code and all that it said. */
export function promtool(
  args: string[],
  files: Record<string, string> = {},
  input = '',
): { code: number; said: string } {
  const cwd = mkdtempSync(join(tmpdir(), 'oomtune-promtool-'));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(cwd, name), text);
    const { status, stdout, stderr } = spawnSync(found ?? 'promtool', args, { cwd, input, encoding: 'utf8' });
    return { code: status ?? -1, said: stdout + stderr };
  } finally {
    rmSync(cwd, { recursive: true, force: true });
  }
}
