import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll } from 'vitest';
import type { Config } from '../../src/contract/rung.js';
import { type CommandPlan, type FilledCommand, fill, recognise } from '../../src/worker/command/index.js';

const made: string[] = [];
afterAll(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A folder with the given files, removed when the test file is done. */
export function project(files: Record<string, string> = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-presets-'));
  made.push(folder);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text, { mode: text.startsWith('#!') ? 0o755 : 0o644 });
  }
  return folder;
}

export interface Setting {
  cwd?: string;
  preset?: string;
  env?: Record<string, string>;
  worldSize?: number;
}

export function plan(command: string | string[], setting: Setting = {}): Promise<CommandPlan> {
  return recognise(typeof command === 'string' ? command.split(' ') : command, {
    cwd: setting.cwd ?? '/nonexistent',
    env: setting.env ?? {},
    preset: setting.preset ?? 'auto',
    worldSize: setting.worldSize,
  });
}

export function config(patch: Partial<Config> = {}): Config {
  const base = { micro_batch: 6, accumulation: 1, world_size: 1, amp: 'off' as const, checkpointing: false, ...patch };
  return { ...base, effective_batch: base.micro_batch * base.accumulation * base.world_size };
}

/** The command line that comes of a command and knobs. Knobs that are not given stay as the command has them. */
export async function filled(
  command: string | string[],
  knobs: Partial<Config>,
  setting: Setting & { launchDir?: string } = {},
): Promise<FilledCommand & { line: string }> {
  const made = await plan(command, setting);
  const { own } = made;
  const result = await fill(
    made,
    config({
      micro_batch: own.microBatch ?? 8,
      accumulation: own.accumulation ?? 1,
      world_size: made.worldSize ?? 1,
      amp: own.amp ?? 'off',
      checkpointing: own.checkpointing ?? false,
      ...knobs,
    }),
    { launchDir: setting.launchDir ?? null },
  );
  return { ...result, line: result.argv.join(' ') };
}
