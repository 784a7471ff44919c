import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';

interface Done {
  status: number;
  /** Both streams, as they came. */
  output: string;
}

/** An interpreter that has imported torch and `modules` (warm.py): what it runs starts without importing them again. */
export class Warm {
  readonly #server: ChildProcessWithoutNullStreams;
  readonly #answers: AsyncIterator<string>;
  /** Of torch. */
  readonly version: Promise<string>;
  #errors = '';

  constructor(python: string, modules: string[], env: NodeJS.ProcessEnv) {
    this.#server = spawn(python, [resolve(import.meta.dirname, 'warm.py'), ...modules], { env });
    this.#server.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errors += text;
    });
    this.#answers = createInterface(this.#server.stdout)[Symbol.asyncIterator]();
    this.version = this.#answer() as Promise<string>;
  }

  /** `script`: in the folder `cwd`, or where it is. */
  run(script: string, args: string[], cwd: string, env: NodeJS.ProcessEnv): Promise<Done> {
    return this.#ask({ script: resolve(cwd, script), arguments: args, cwd, env }) as Promise<Done>;
  }

  /** Largest relative difference of a tensor between two files of weights; 0: the same bits. */
  difference(one: string, other: string): Promise<number> {
    return this.#ask({ one, other }) as Promise<number>;
  }

  close(): void {
    this.#server.stdin.end();
  }

  async #ask(asked: object): Promise<unknown> {
    await this.version;
    this.#server.stdin.write(`${JSON.stringify(asked)}\n`);
    return this.#answer();
  }

  async #answer(): Promise<unknown> {
    const { value, done } = await this.#answers.next();
    if (done) throw new Error(`warm.py ended: ${this.#errors}`);
    return JSON.parse(value);
  }
}
