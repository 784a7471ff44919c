import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseSize } from '../../src/common/size.js';
import type { ProbeRecord } from '../../src/contract/measurement.js';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { closingSize } from '../../src/tuner/sizes.js';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { QUICK_END } from '../common/quick-end.js';
import { Warm } from './warm.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write(
    'SKIPPED: training with real frameworks, as OOMTUNE_TEST_FRAMEWORKS names no interpreter that has them\n',
  );
}

interface Command {
  script: string;
  args?: string[];
  /** The console script that is started in place of `script`; `script`_data.py, if there is one, makes what it reads, `script`_weights.py reads what it kept. */
  console?: string;
  /** The script's own batch, and batches per step. */
  own: number;
  accumulation?: number;
  /** Processes that each get such batches. */
  ranks?: number;
  /** How the batch is said without the hook; else by the environment's BATCH. */
  flag?: string;
  /** Samples differ in size: LONGEST in the environment has it train on the largest alone, which is what an answer has to hold for. */
  differ?: boolean;
  cut?: string;
  /** Its models take statistics of each micro-batch: a cut run ends at other weights, which is told. */
  normalises?: boolean;
}

/** Less than the script's own batch takes; or the largest micro-batch that the cut run may use, and why no budget is searched. */
type Limit = { budget: string; most?: never; unbounded?: never } | { budget?: never; most: number; unbounded: string };
type Framework = Command & Limit;

/**
 * What may fit besides an answer: a search leaves half a MiB to libraries, and starts of one command differ by up to another half, as
 * tables that are hashed by address grow once more in some.
 */
const LEFT_OVER = 1.25 * 1024 ** 2;

/** By as much starts of one command differ, in bytes: a size that leaves less may run out of memory in the next. */
const APART = 512 * 1024;

/** The size that has to run in any process: the largest, or the recommended one where that fills the budget to the brim. */
function sure({ max_micro_batch: most, config, probes }: FindBatchReport, budget: string): number {
  const peak = Math.max(...probes.map((one) => (one.micro_batch === most ? (one.peak_bytes ?? 0) : 0)));
  const left = parseSize(budget) - peak;
  if (left >= APART) return most as number;
  process.stderr.write(
    `NOT ASKED of micro-batch ${most}, but of the recommended: it leaves ${left} bytes, and starts differ by more\n`,
  );
  return config?.micro_batch as number;
}

/** 2 per cent above the largest size that was found (two samples at least), and what else these bytes have room for. */
function beyond({ max_micro_batch: most, probes }: FindBatchReport): number {
  const fits = probes.filter(({ outcome, peak_bytes: peak }) => outcome === 'fit' && peak !== null);
  const [large, ...smaller] = fits.toSorted((a, b) => b.micro_batch - a.micro_batch) as [ProbeRecord, ...ProbeRecord[]];
  const small = smaller.find((one) => one.micro_batch < 0.75 * large.micro_batch) as ProbeRecord;
  const bytes = (large.peak_bytes as number) - (small.peak_bytes as number);
  const room = Math.ceil((LEFT_OVER * (large.micro_batch - small.micro_batch)) / bytes);
  return closingSize(most as number) + room;
}

/**
 * Holds for each of `frameworks`, unmodified scripts: as it stands it trains to the same bits, the answer of a search holds, and
 * a cut run ends at the same weights. `modules` are what most of the scripts import, for the runs beside oomtune.
 */
export function trainsAsItIs(what: string, modules: string[], frameworks: Framework[]): void {
  describe.skipIf(python === '')(`an unmodified script of ${what}`, () => {
    const oomtune = new Oomtune();
    const folders: string[] = [];
    /** Hubs are not reached here, and would not be asked for anything. */
    const env = {
      HF_HUB_OFFLINE: '1',
      TOKENIZERS_PARALLELISM: 'false',
      YOLO_OFFLINE: 'true',
      YOLO_CONFIG_DIR: oomtune.home,
      HOME: process.env.HOME,
      PATH: process.env.PATH,
      PYTHONPATH: QUICK_END,
    };

    let warm: Warm;

    async function trained(script: string, args: string[], cwd: string): Promise<void> {
      const { status, output } = await warm.run(script, args, cwd, { ...oomtune.env, ...env });
      expect(status, output).toBe(0);
    }

    async function helped(script: string, cwd: string): Promise<void> {
      if (existsSync(join(cwd, `${script}.py`))) await trained(`${script}.py`, [], cwd);
    }

    /** A folder of its own, as the scripts write into the one that they run in. */
    async function folder({ script }: Framework): Promise<string> {
      const made = mkdtempSync(join(tmpdir(), 'oomtune-frameworks-'));
      cpSync(join(ROOT, 'test', 'frameworks', 'scripts'), made, { recursive: true });
      folders.push(made);
      await helped(`${script}_data`, made);
      return made;
    }

    async function weightsOf({ script }: Framework, cwd: string): Promise<string> {
      await helped(`${script}_weights`, cwd);
      return join(cwd, 'weights.pt');
    }

    const consoleOf = (program: string): string => join(dirname(python), program);
    const programOf = ({ script, console: program }: Framework): string[] =>
      program === undefined ? [python, `${script}.py`] : [consoleOf(program)];

    /** Its command at a batch of its own, without oomtune's means, and what the environment says of it. */
    function sized(framework: Framework, batch: number): { command: string[]; env: NodeJS.ProcessEnv } {
      const { args = [], flag } = framework;
      const program = programOf(framework);
      if (flag === undefined) return { command: [...program, ...args], env: { ...env, BATCH: String(batch) } };
      const said = [...args, ...`${flag}${batch}`.split(' ')]; // the last one counts
      return { command: [...program, ...said], env };
    }

    const command = (framework: Framework) => [...programOf(framework), ...(framework.args ?? [])];

    async function alone(framework: Framework): Promise<string> {
      const cwd = await folder(framework);
      // a console script is a file of Python, too
      const program = framework.console === undefined ? `${framework.script}.py` : consoleOf(framework.console);
      await trained(program, framework.args ?? [], cwd);
      return weightsOf(framework, cwd);
    }

    const reported = (cwd: string) => JSON.parse(readFileSync(join(cwd, 'report.json'), 'utf8'));

    /**
     * Whether a batch runs within the budget in a process of its own that knows nothing of the hook, and what that one was refused: one
     * that goes on without the workspaces of its libraries (MKL's packed matrices, 4 to 12 of 80 MiB, other ones on each kind of
     * processor) holds less than at a smaller size, so that 5 % more may run. It is no measure of a limit.
     */
    async function bareRun(framework: Framework, batch: number): Promise<{ runs: boolean; refused: number }> {
      const cwd = await folder(framework);
      const sizedAs = sized(framework, batch);
      const { command } = sizedAs;
      const env = framework.differ ? { ...sizedAs.env, LONGEST: '1' } : sizedAs.env;
      const options = ['--no-tune', '--preset', 'none', '--device', 'cpu', '--budget', framework.budget as string];
      const ended = await oomtune.call(['run', ...options, '--report', 'report.json', '--', ...command], { cwd, env });
      const { outcome, failure, refused } = reported(cwd);
      if (outcome !== 'succeeded') expect(failure?.class, ended.stderr).toBe('device_oom');
      return { runs: outcome === 'succeeded', refused };
    }

    beforeAll(async () => {
      warm = new Warm(python, modules, { ...oomtune.env, ...env });
      expect(await warm.version, 'the environment holds a current torch').toMatch(/^2\./);
    });

    afterAll(async () => {
      warm?.close();
      await oomtune.close();
      for (const made of folders) rmSync(made, { recursive: true, force: true });
    });

    describe.each(frameworks)('$script', (framework) => {
      const { own, accumulation = 1, ranks = 1, budget, most, script, unbounded, cut = 'auto' } = framework;
      const bound = budget === undefined ? ['--max-batch', String(most)] : ['--budget', budget];
      const options = ['--name', script, '--device', 'cpu', '--cut', cut, ...bound];
      if (unbounded !== undefined) process.stderr.write(`NOT ASKED what fits a budget with ${script}: ${unbounded}\n`);
      let bare = '';
      let searched: { cwd: string; found: number } | null = null;

      it('trains as it stands to the same bits', async () => {
        bare = await alone(framework);
        const cwd = await folder(framework);
        const args = ['run', '--no-tune', '--device', 'cpu', '--', ...command(framework)];
        const { code, stderr } = await oomtune.call(args, { cwd, env });
        expect(code, stderr).toBe(0);
        expect(await warm.difference(bare, await weightsOf(framework, cwd))).toBe(0);
      }, 900_000);

      it.runIf(budget)(
        'gets a largest size that holds in a fresh process, and 2 % and 1¼ MiB above it does not',
        async () => {
          const cwd = await folder(framework);
          const args = ['find-batch', '--json', ...options, '--', ...command(framework)];
          const { stdout, stderr } = await oomtune.call(args, { cwd, env });
          const report = JSON.parse(stdout) as FindBatchReport;
          expect(report.status, stderr).toBe('found');
          const found = report.max_micro_batch as number;
          searched = { cwd, found };
          expect(found).toBeLessThan(own);
          const size = sure(report, budget as string);
          expect(await bareRun(framework, size), `${size} of ${found}`).toMatchObject({ runs: true });
          const more = beyond(report);
          expect((await bareRun(framework, more)).refused, `${more} after ${found}`).toBeGreaterThan(0);
        },
        900_000,
      );

      it('is cut to fit, and trains to the same weights at its own effective batch', async () => {
        // where it was searched before, `run` takes what was recorded there
        const cwd = searched?.cwd ?? (await folder(framework));
        const args = ['run', ...options, '--report', 'report.json', '--', ...command(framework)];
        const { code, stderr } = await oomtune.call(args, { cwd, env });
        expect(code, stderr).toBe(0);
        const { config } = reported(cwd);
        expect(config.micro_batch).toBeLessThanOrEqual(searched?.found ?? most ?? own);
        expect(config.effective_batch).toBe(own * accumulation * ranks);
        const other = await warm.difference(bare, await weightsOf(framework, cwd));
        if (framework.normalises) {
          expect(stderr).toContain('Batch normalisation takes its statistics from each micro-batch');
          return;
        }
        expect(other).toBeLessThan(1e-5);
        expect(other, 'rounding tells that it was cut indeed').toBeGreaterThan(0);
      }, 900_000);
    });
  });
}
