import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runReport } from '../cli/contract.js';
import { Oomtune, PYTHON } from '../cli/oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

/** Runs a script on the CPU under a budget that the ledger watches over, and gives the report's failure. */
async function failureOf(lines: string[]) {
  await oomtune.call([
    ...['run', '--no-tune', '--device', 'cpu', '--budget', '900MiB', '--report', 'r.json', '--'],
    PYTHON,
    '-c',
    ['import torch', ...lines].join('\n'),
  ]);
  const { failure, refused } = runReport.parse(JSON.parse(readFileSync(join(oomtune.home, 'r.json'), 'utf8')));
  return { class: failure?.class, cause: failure?.cause, refused };
}

describe('a job on the CPU under a budget', () => {
  it('that only says that a GPU ran out of memory did not run out of memory', async () => {
    const raised = await failureOf(['raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")']);
    expect(raised).toMatchObject({ class: 'user_error', refused: 0 });
    expect(raised.cause).toContain('ran on the CPU');
    const printed = await failureOf(['print("CUDA out of memory. Tried to allocate 2.00 GiB")', 'raise SystemExit(3)']);
    expect(printed).toMatchObject({ class: 'user_error', refused: 0 });
  });

  it('that was refused memory did, whatever it says of it', async () => {
    const refused = await failureOf(['x = torch.ones(1 << 30)']);
    expect(refused.class).toBe('device_oom');
    expect(refused.refused).toBeGreaterThan(0);
  });
});
