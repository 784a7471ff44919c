import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Oomtune, PROGRAM, PYTHON, ROOT } from '../cli/oomtune.js';

const run = promisify(execFile);

/** Every page that a user reads, but the command line's reference, which the program writes. */
export const PAGES = [
  'README.md',
  ...['docs/guides', 'docs/reference'].flatMap((folder) =>
    readdirSync(join(ROOT, folder)).map((file) => `${folder}/${file}`),
  ),
].filter((page) => page.endsWith('.md') && !page.endsWith('cli.md'));

export const read = (page: string): string => readFileSync(join(ROOT, page), 'utf8');

/** The shell's part of a page: its fenced blocks without a language, or marked as a shell's. */
export function blocks(page: string): string[] {
  const text = read(page).replace(/<!-- picture \w+ -->[\s\S]*?<!-- \/picture -->/g, '');
  const all = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)];
  return all.filter(([, language = '']) => ['', 'bash', 'sh'].includes(language)).map(([, , block = '']) => block);
}

/** A folder in which somebody follows a guide: `oomtune` and `python` are on PATH, state and Redis are its own. */
export class Reader {
  readonly oomtune = new Oomtune();
  readonly work = join(this.oomtune.home, 'work');
  readonly bin = join(this.work, 'bin');

  constructor() {
    mkdirSync(this.bin, { recursive: true });
    this.program('oomtune', `#!/bin/sh\nexec '${PROGRAM}' "$@"\n`);
    this.program('python', `#!/bin/sh\nexec '${PYTHON}' "$@"\n`);
  }

  program(name: string, text: string): void {
    writeFileSync(join(this.bin, name), text);
    chmodSync(join(this.bin, name), 0o755);
  }

  file(name: string, text: string): void {
    mkdirSync(join(this.work, name, '..'), { recursive: true });
    writeFileSync(join(this.work, name), text);
  }

  /** Runs lines of shell; throws with all that was said where one of them fails. */
  async shell(script: string, { cwd = this.work, env = {} }: { cwd?: string; env?: NodeJS.ProcessEnv } = {}) {
    return run('bash', ['--norc', '-euo', 'pipefail', '-c', script], {
      cwd,
      env: { ...this.oomtune.env, PATH: `${this.bin}:${this.oomtune.env.PATH}`, ...env },
      maxBuffer: 2 ** 24,
    });
  }

  close(): Promise<void> {
    return this.oomtune.close();
  }
}
