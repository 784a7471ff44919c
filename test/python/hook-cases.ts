import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const cases = fileURLToPath(new URL('./cases', import.meta.url));

/** The oldest torch that is supported, Debian's, and a current one with the frameworks themselves, where set-up could install them. */
const INTERPRETERS = {
  'the oldest torch': process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3',
  'a current torch': process.env.OOMTUNE_TEST_FRAMEWORKS ?? '',
};

/** Parts of about the same length, as files of tests run side by side; what none of them names is the rest's. */
const PARTS: Record<string, RegExp> = {
  apply: /^test_(activation_budget|apply|checkpointed\w*|chunked_loss|optimizer_on_host|streamed_activations)\.py$/,
  cut: /^test_(cut\w*|loaderless|lives|spare|training_frameworks)\.py$/,
  probe: /^test_(probe|knobs|memory_breakdown|growing_variables|inject|ranks|shards)\.py$/,
};

function files(part: string): string[] {
  const named = Object.values(PARTS);
  return readdirSync(cases)
    .filter((name) => /^test_\w+\.py$/.test(name))
    .filter((name) => PARTS[part]?.test(name) ?? !named.some((one) => one.test(name)));
}

/** A test for each file of Python cases of that part, under each torch. */
export function hookCases(part: string): void {
  for (const [torch, interpreter] of Object.entries(INTERPRETERS)) {
    if (interpreter === '') {
      process.stderr.write(`SKIPPED: the hook under ${torch}, as OOMTUNE_TEST_FRAMEWORKS names no interpreter\n`);
    }
    describe.skipIf(interpreter === '')(`the python hook under ${torch}`, () => {
      const names = files(part);
      let cases: Cases;
      beforeAll(() => {
        cases = new Cases(interpreter, names);
      });
      afterAll(() => cases?.end());
      for (const name of names) {
        it(name.replace(/^test_(\w+)\.py$/, '$1'), async () => passed(await cases.of(name)), 1_800_000);
      }
    });
  }
}

interface Ended {
  file: string;
  status: number;
  output: string;
}

function passed({ status, output }: Ended): void {
  // Skipped cases say why.
  const skipped = output.split('\n').filter((line) => line.includes('... skipped'));
  if (skipped.length > 0) console.log(skipped.join('\n'));
  expect(status, output).toBe(0);
  expect(output).toMatch(/Ran [1-9]\d* tests?/);
}

/** One process for all files of a part (run_cases.py): torch is imported once, not by each file and again for its scripts. */
class Cases {
  readonly #runner: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  #errors = '';

  constructor(interpreter: string, names: string[]) {
    this.#runner = spawn(interpreter, ['run_cases.py', ...names], {
      cwd: cases,
      env: { ...process.env, OMP_NUM_THREADS: '1', PYTHONDONTWRITEBYTECODE: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#runner.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errors += text;
    });
    this.#answers = createInterface(this.#runner.stdout as NodeJS.ReadableStream)[Symbol.asyncIterator]();
  }

  /** They come in the order in which they were named. */
  async of(name: string): Promise<Ended> {
    for (;;) {
      const { value, done } = await this.#answers.next();
      if (done) throw new Error(`run_cases.py ended: ${this.#errors}`);
      const ended: Ended = JSON.parse(value);
      if (ended.file === name) return ended; // a test that was left out asks for none
    }
  }

  end(): void {
    this.#runner.kill();
  }
}
