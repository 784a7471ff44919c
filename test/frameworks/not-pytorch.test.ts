import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { asked, placeOf, there } from './entry-points.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

/** Programs that the hook cannot set sizes in: each takes its batch size by a flag, and each size is a launch. */
const PROGRAMS = [
  { name: 'jax', command: 'python train.py --batch-size', budget: '200MiB' },
  { name: 'libtorch', command: 'train --batch-size', budget: '200MiB' },
];

describe.each(PROGRAMS.filter(({ name }) => there(name)))('a program of $name', ({ name, command, budget }) => {
  const at = placeOf(name);
  const words = command.split(' ');
  const device = ['--device', 'cpu', '--budget', budget];

  it('is searched by its flag to the edge of its memory, and what was found trains in a fresh process', async () => {
    const found = (await oomtune.json(
      ['find-batch', ...device, '--', ...words, '{micro_batch}'],
      at,
    )) as FindBatchReport;
    expect(found.status, JSON.stringify(found)).toBe('found');
    // Six where processes hold alike. How many where their threads do not, the tests of the tuner hold (test/tuner/noisy-launches).
    expect(found.launches).toBeLessThanOrEqual(16);
    const most = found.max_micro_batch as number;
    const beyond = found.probes.filter(({ outcome }) => outcome === 'device_oom').map((one) => one.micro_batch);
    expect(Math.min(...beyond)).toBeGreaterThan(most);
    // Either a size near by has failed, or so little is free that none had to.
    const peak = Math.max(...found.probes.map((one) => (one.micro_batch === most ? (one.peak_bytes ?? 0) : 0)));
    expect(Math.min(...beyond) < 1.1 * most || peak > 0.97 * 200 * 1024 ** 2).toBe(true);
    const ran = await oomtune.call(['run', '--no-tune', ...device, '--', ...words, `${most}`], at);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toContain('step 2 loss');
  }, 600_000);
});

it.skipIf(!there('jax'))('the installed JAX has what the hook asks for what its memory pool held', () => {
  const program = `
import json, sys, jax
sys.path.insert(0, sys.argv[1])
from oomtune.hook.watch.xla_pool import fullest_pool
told = []
for use in (lambda: None, jax.devices):
    use()
    told.append([sys.modules["jax._src.xla_bridge"].backends_are_initialized(), fullest_pool(jax)])
print(json.dumps([told, jax.devices()[0].memory_stats()]))`;
  const before = [false, null];
  const after = [true, null]; // a CPU has no pool
  expect(asked(placeOf('jax'), program, [join(ROOT, 'python')])).toEqual([[before, after], null]);
});
