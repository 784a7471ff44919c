import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Set-up speaks on stderr: stdout is left to what it prepares. */
export const say = (text) => process.stderr.write(`${text}\n`);

/** Ends set-up with a sentence and what to do; 5 is "something needed is missing". */
export class Missing extends Error {
  constructor(message, remedy) {
    super(message);
    this.remedy = remedy;
  }
}

/** Runs a program with its output shown; throws Missing when it fails. */
export function run(argv, { remedy, env } = {}) {
  say(`  $ ${argv.join(' ')}`);
  const [program, ...args] = argv;
  const done = spawnSync(program, args, { cwd: ROOT, stdio: ['ignore', 2, 2], env: { ...process.env, ...env } });
  if (done.error)
    throw new Missing(`${program} could not be started: ${done.error.message}`, remedy ?? `Install ${program}.`);
  if (done.status !== 0) {
    throw new Missing(
      `${argv.join(' ')} failed (${done.signal ?? `exit code ${done.status}`}).`,
      remedy ?? 'Its output above says why.',
    );
  }
}

/** What a program printed, or null if it failed or is not there. */
export function output(argv, { timeout = 60_000, env, cwd } = {}) {
  const [program, ...args] = argv;
  const done = spawnSync(program, args, { encoding: 'utf8', timeout, cwd, env: { ...process.env, ...env } });
  return done.status === 0 ? done.stdout.trim() : null;
}
