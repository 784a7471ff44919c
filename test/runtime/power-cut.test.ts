import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import { freshDir, launchSpec } from './helpers.js';

/**
 * The power is cut at each step of writing a record: into `<name>.tmp`, synchronised, renamed, the folder synchronised. What a
 * disk holds afterwards is one of these; the last three only where it does not do what it says of synchronising.
 */
const STEPS: Record<string, (folder: string, name: string, whole: string) => void> = {
  'before the first': () => {},
  'the side file is made': (folder, name) => writeFileSync(join(folder, `${name}.tmp`), ''),
  'the side file is half written': (folder, name, whole) =>
    writeFileSync(join(folder, `${name}.tmp`), whole.slice(0, whole.length / 2)),
  'the side file has its size and no contents yet': (folder, name, whole) =>
    writeFileSync(join(folder, `${name}.tmp`), Buffer.alloc(whole.length)),
  'the side file is whole': (folder, name, whole) => writeFileSync(join(folder, `${name}.tmp`), whole),
  renamed: (folder, name, whole) => writeFileSync(join(folder, name), whole),
  'renamed, and the disk had not kept the contents': (folder, name, whole) =>
    writeFileSync(join(folder, name), Buffer.alloc(whole.length)),
  'renamed, and the disk had kept half of it': (folder, name, whole) =>
    writeFileSync(join(folder, name), whole.slice(0, whole.length / 2)),
  'renamed, and the disk had kept the name alone': (folder, name) => writeFileSync(join(folder, name), ''),
};

const runtime = createRuntime();
/** What a launch that ended with 7 had in its folder: after its start, and after its end. */
let records: { supervisor: string; exit: string };

beforeAll(async () => {
  const run = await runtime.launch(launchSpec(['sh', '-c', 'exit 7']));
  const supervisor = JSON.parse(readFileSync(join(run.dir, 'supervisor.json'), 'utf8'));
  expect(await run.wait()).toMatchObject({ code: 7 });
  records = {
    supervisor: JSON.stringify({ ...supervisor, boot_id: '00000000-0000-4000-8000-000000000000' }), // it is up again since
    exit: readFileSync(join(run.dir, 'exit.json'), 'utf8'),
  };
  // Records are all that decides: nothing else is left of a write
  expect(readdirSync(run.dir).filter((name) => name.endsWith('.tmp'))).toEqual([]);
});

function folder(fill: (dir: string) => void): string {
  const dir = freshDir();
  mkdirSync(dir, { recursive: true });
  fill(dir);
  return dir;
}

describe.each(Object.entries(STEPS))('a power cut while a record is written: %s', (name, step) => {
  const lost = { code: null, ended_by: 'supervisor-lost' };

  test('a run that had begun is known, as one that was lost, or else was never let begin', async () => {
    const dir = folder((at) => step(at, 'supervisor.json', records.supervisor));
    const run = await runtime.adopt(dir);
    // The job is let go only once this record is on the disk under its name
    if (name.startsWith('renamed')) expect(await run?.wait()).toMatchObject(lost);
    else expect(run).toBeNull();
  });

  test('how a run ended is known, or that it is not: never another end', async () => {
    const dir = folder((at) => {
      writeFileSync(join(at, 'supervisor.json'), records.supervisor);
      step(at, 'exit.json', records.exit);
    });
    const exit = await (await runtime.adopt(dir))?.wait();
    expect(exit).toMatchObject(name === 'renamed' ? { code: 7, ended_by: 'job' } : lost);
    // What was concluded is found again by the next, from the file
    const copy = freshDir();
    cpSync(dir, copy, { recursive: true });
    rmSync(dir, { recursive: true });
    expect(await (await runtime.adopt(copy))?.wait()).toMatchObject({ code: exit?.code, ended_by: exit?.ended_by });
  });

  test('what the main process ended with is believed only whole', async () => {
    const dir = folder((at) => {
      writeFileSync(join(at, 'supervisor.json'), records.supervisor);
      step(at, 'main.json', records.exit);
    });
    const exit = await (await runtime.adopt(dir))?.wait();
    expect(exit).toMatchObject(name === 'renamed' ? { code: 7, ended_by: 'job' } : lost);
  });
});
