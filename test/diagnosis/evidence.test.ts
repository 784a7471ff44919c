import { existsSync, readFileSync } from 'node:fs';
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
  return { class: failure?.class, certain: failure?.certain, cause: failure?.cause, refused };
}

describe('a command that the program runs and that fails', () => {
  it('is what is told, and not the exception of the line that reads its answer', async () => {
    const lines = ['import os', "rows, columns = os.popen('stty size', 'r').read().split()"];
    const args = ['-c', ['import torch', ...lines].join('\n')];
    await oomtune.call(['run', '--no-tune', '--device', 'cpu', '--report', 'r.json', '--', PYTHON, ...args]);
    const { failure } = runReport.parse(JSON.parse(readFileSync(join(oomtune.home, 'r.json'), 'utf8')));
    expect(failure?.class).toBe('user_error');
    expect(failure?.evidence).toMatch(/^stty: '?standard input'?: Inappropriate ioctl for device$/);
    expect(failure?.advice).toContain('terminal');
  });
});

describe('an exception whose message begins on the next line', () => {
  it('is shown with that line', async () => {
    const missing = 'ImportError("\\nTokenizer requires a library that is not installed.\\nSee its page.\\n")';
    const args = ['-c', `raise ${missing}`];
    await oomtune.call(['run', '--no-tune', '--device', 'cpu', '--report', 'r.json', '--', PYTHON, ...args]);
    const { failure } = runReport.parse(JSON.parse(readFileSync(join(oomtune.home, 'r.json'), 'utf8')));
    expect(failure?.evidence).toBe('ImportError: Tokenizer requires a library that is not installed.');
  });
});

describe('a job on the CPU under a budget', () => {
  it('that only says that a GPU ran out of memory did not run out of memory', async () => {
    const raised = await failureOf(['raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")']);
    expect(raised).toMatchObject({ class: 'user_error', refused: 0 });
    expect(raised.cause).toContain('ran on the CPU');
    const printed = await failureOf(['print("CUDA out of memory. Tried to allocate 2.00 GiB")', 'raise SystemExit(3)']);
    expect(printed).toMatchObject({ class: 'user_error', refused: 0 });
  });

  // Native libraries beside torch's allocator say what they like of it, and some crash: oneDNN, OpenBLAS, MKL.
  it.each([
    ['a matrix product', 'torch.mm(torch.randn(512, 512), torch.randn(512, 512))'],
    ['a convolution', 'torch.nn.Conv2d(8, 16, 3)(torch.randn(4, 8, 64, 64))'],
    ['a convolution in bfloat16', 'torch.nn.Conv2d(8, 16, 3).bfloat16()(torch.randn(4, 8, 64, 64).bfloat16())'],
    ['a layer of oneDNN', 'torch.relu(torch.randn(4, 8, 64, 64).to_mkldnn()).to_dense()'],
  ])('that was refused the memory of %s did, whatever a library says or does then', async (_, call) => {
    const passed = join(oomtune.home, `passed-${call.length}`);
    const { class: verdict, refused } = await failureOf([
      'kept, step = [], 1 << 25',
      'while step >= 1 << 12:',
      '    try:',
      '        kept.append(torch.empty(step, dtype=torch.uint8))',
      '    except RuntimeError:',
      '        step //= 2',
      call,
      `open(${JSON.stringify(passed)}, "w").close()`,
    ]);
    expect(existsSync(passed), 'the call was not refused').toBe(false);
    expect(verdict).toBe('device_oom');
    expect(refused).toBeGreaterThan(0);
  });

  // No torch here could be brought to say this near its budget (they say other things, above): the script says it in oneDNN's stead.
  it('whose oneDNN could not execute a primitive ran out of memory if it was refused some a moment before, and else not', async () => {
    const says = 'raise RuntimeError("could not execute a primitive")';
    const refused = await failureOf(['try:', '    torch.ones(1 << 30)', 'except RuntimeError:', '    pass', says]);
    expect(refused).toMatchObject({ class: 'device_oom', certain: true });
    expect(refused.refused).toBeGreaterThan(0);
    const alone = await failureOf(['torch.ones(1 << 10)', says]);
    expect(alone).toMatchObject({ class: 'user_error', refused: 0 });
  });

  it('that was refused memory did, whatever it says of it', async () => {
    const refused = await failureOf(['x = torch.ones(1 << 30)']);
    expect(refused.class).toBe('device_oom');
    expect(refused.refused).toBeGreaterThan(0);
  });
});
