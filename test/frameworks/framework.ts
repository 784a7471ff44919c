import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProbeRecord } from '../../src/contract/measurement.js';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { closingSize } from '../../src/tuner/sizes.js';
import { Oomtune, ROOT } from '../cli/oomtune.js';
import { Warm } from './warm.js';

/** An interpreter with the real packages; empty: they could not be installed, or were not asked for. */
const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
if (python === '') {
  process.stderr.write(
    'SKIPPED: training with real frameworks, as OOMTUNE_TEST_FRAMEWORKS names no interpreter that has them\n',
  );
}

interface Framework {
  script: string;
  args?: string[];
  /** The console script that is started in place of `script`; `script`_data.py, if there is one, makes what it reads, `script`_weights.py reads what it kept. */
  console?: string;
  /** The script's own batch, and batches per step. */
  own: number;
  accumulation?: number;
  /** Less than the script's own batch takes; where none is named, `most` is the largest micro-batch that the cut run may use. */
  budget?: string;
  most?: number;
  /** How the batch is said without the hook; else by the environment's BATCH. */
  flag?: string;
  /** Samples differ in size: LONGEST in the environment has it train on the largest alone, which is what an answer has to hold for. */
  differ?: boolean;
  /** It is not asked whether more than the largest size fits. */
  unbounded?: boolean;
  cut?: string;
  /** Its models take statistics of each micro-batch: a cut run ends at other weights, which is told. */
  normalises?: boolean;
}

/**
 * What may fit besides an answer: a search leaves half a MiB to libraries, and starts of one command differ by up to another half, as
 * tables that are hashed by address grow once more in some.
 */
const LEFT_OVER = 1.25 * 1024 ** 2;

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

    const programOf = ({ script, console: program }: Framework): string[] =>
      program === undefined ? [python, `${script}.py`] : [join(dirname(python), program)];

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
      if (framework.console === undefined) {
        await trained(`${framework.script}.py`, framework.args ?? [], cwd);
      } else {
        const [program, ...args] = command(framework) as [string, ...string[]];
        const done = spawnSync(program, args, { cwd, encoding: 'utf8', env: { ...oomtune.env, ...env } });
        expect(done.status, done.stderr).toBe(0);
      }
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
      const { own, accumulation = 1, budget, most = own, script, unbounded, cut = 'auto' } = framework;
      const bound = budget === undefined ? ['--max-batch', String(most)] : ['--budget', budget];
      const options = ['--name', script, '--device', 'cpu', '--cut', cut, ...bound];
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
        `gets an answer that holds in a fresh process${unbounded ? '' : ', and 2 % and 1¼ MiB above the largest does not'}`,
        async () => {
          const cwd = await folder(framework);
          const args = ['find-batch', '--json', ...options, '--', ...command(framework)];
          const { stdout, stderr } = await oomtune.call(args, { cwd, env });
          const report = JSON.parse(stdout) as FindBatchReport;
          expect(report.status, stderr).toBe('found');
          const found = report.max_micro_batch as number;
          searched = { cwd, found };
          expect(found).toBeLessThan(own);
          const recommended = report.config?.micro_batch as number;
          expect(await bareRun(framework, recommended), `${recommended} of ${found}`).toMatchObject({ runs: true });
          if (unbounded) return;
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
        expect(config.micro_batch).toBeLessThanOrEqual(searched?.found ?? most);
        expect(config.effective_batch).toBe(own * accumulation);
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
