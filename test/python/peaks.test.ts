import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Exit } from '../../src/contract/launch.js';
import { createRuntime } from '../../src/runtime/index.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const MIB = 1024 * 1024;

interface Message {
  t: string;
  [field: string]: unknown;
}

let home: string;
let server: Server | undefined;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'oomtune-peaks-'));
});

afterEach(() => {
  server?.close();
  rmSync(home, { recursive: true, force: true });
});

/** Runs an example under a budget of host memory, asking for these sizes one after the other. */
async function search(script: string, budgetBytes: number, sizes: number[]): Promise<{ said: Message[]; exit: Exit }> {
  const said: Message[] = [];
  const socket = join(home, 'hook.sock');
  server = createServer((line) => {
    let text = '';
    line.on('data', (data) => {
      text += data;
      for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
        const message = JSON.parse(text.slice(0, end)) as Message;
        text = text.slice(end + 1);
        said.push(message);
        if (message.t !== 'loop' && message.t !== 'measured') continue;
        const size = sizes.shift();
        line.write(`${JSON.stringify(size ? { t: 'probe', micro_batch: size, steps: 3 } : { t: 'end' })}\n`);
      }
    });
  });
  await new Promise<void>((resolve) => server?.listen(socket, resolve));
  const run = await createRuntime().launch({
    jobId: 'j-peaks',
    launch: 1,
    argv: [process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3', join(root, script)],
    cwd: home,
    env: {
      PATH: process.env.PATH ?? '/usr/bin:/bin',
      OMP_NUM_THREADS: '1',
      OOMTUNE_HOOK: 'probe',
      OOMTUNE_HOOK_SOCKET: socket,
      PYTHONPATH: `${join(root, 'python/inject')}:${join(root, 'python')}`,
    },
    dir: join(home, '1'),
    devices: ['cpu'],
    budgetBytes,
    timeoutSeconds: 100,
    graceSeconds: 2,
    output: 'log',
  });
  const exit = await run.wait();
  if (said.length === 0) throw new Error(readFileSync(run.logFile, 'utf8'));
  return { said, exit };
}

const totals = (said: Message[]) => said.filter(({ t }) => t === 'measured').map((m) => Number(m.total_bytes));

describe('peaks of a driven process under the preload', () => {
  it('are the ledger of host memory, phase by phase, and the same each time', async () => {
    const sizes = [50, 100, 200, 400, 100];
    const { said, exit } = await search('examples/mlp.py', 300 * MIB, [...sizes]);
    expect(exit.code).toBe(0);
    const measured = said.filter(({ t }) => t === 'measured');
    expect(measured.map((m) => m.micro_batch)).toEqual(sizes);
    const peaks = totals(said) as [number, number, number, number, number];
    expect(exit.ledger?.devices[0]?.peak_bytes).toBe(Math.max(...peaks));
    // Affine in the batch: twice the step, twice the growth.
    const growth = (peaks[3] - peaks[2]) / (peaks[2] - peaks[1]);
    expect(growth).toBeGreaterThan(1.95);
    expect(growth).toBeLessThan(2.05);
    expect(Math.abs(peaks[4] - peaks[1])).toBeLessThan(peaks[1] * 0.01);
    for (const m of measured) {
      expect(Number(m.optimizer_bytes)).toBeLessThanOrEqual(Number(m.total_bytes));
      expect(Number(m.resident_bytes)).toBeGreaterThan(8 * MIB);
      expect(m.step_s).toHaveLength(3);
    }
  });

  it('of a convolutional net are the same after other sizes as at first', async () => {
    const { said } = await search('examples/convnet.py', 400 * MIB, [9, 1, 2, 3, 4, 5, 6, 7, 9]);
    const peaks = totals(said);
    // What oneDNN keeps for seven other shapes is 4 MiB.
    expect(Math.abs((peaks.at(-1) as number) - (peaks[0] as number))).toBeLessThan(1.5 * MIB);
  });

  it('end in an out-of-memory error of torch at a size that the budget does not hold', async () => {
    const { said, exit } = await search('examples/transformer.py', 150 * MIB, [2, 60]);
    expect(totals(said)).toHaveLength(1);
    const told = said.find(({ t }) => t === 'exception');
    expect(told).toMatchObject({ oom: true, phase: 'train', micro_batch: 60, class: 'RuntimeError' });
    expect(String(told?.message)).toContain('you tried to allocate');
    expect(exit.code).toBe(1);
    expect(exit.ledger?.refused).toBeGreaterThan(0);
  });

  it('tell of an out-of-memory error that the script swallows', async () => {
    const { said, exit } = await search('test/fixtures/python/swallows.py', 256 * MIB, [2, 4000]);
    expect(totals(said)).toHaveLength(1);
    expect(said.find(({ t }) => t === 'exception')).toMatchObject({ oom: true, phase: 'train', micro_batch: 4000 });
    expect(exit.code).toBe(1);
  });

  it('show memory that each step leaves behind, in a loop that leaks and in no other', async () => {
    const grown = async (example: string) => {
      const { said } = await search(example, 400 * MIB, [64, 32]);
      server?.close();
      rmSync(home, { recursive: true, force: true });
      home = mkdtempSync(join(tmpdir(), 'oomtune-peaks-'));
      return said.filter(({ t }) => t === 'measured').map((m) => Number(m.growth_bytes_per_step));
    };
    // At least the activations of two layers of 1024 for each sample.
    for (const [place, bytes] of (await grown('examples/leak.py')).entries()) {
      expect(bytes).toBeGreaterThan(([64, 32][place] as number) * 8192);
    }
    expect(await grown('examples/mlp.py')).toEqual([0, 0]);
  });
});
