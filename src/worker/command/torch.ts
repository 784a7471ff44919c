import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { longestStartMs } from '../../common/bounds.js';
import { OomtuneError } from '../../common/errors.js';
import { findCommand } from '../../common/executable.js';
import { TimeUp, within } from '../../common/within.js';
import type { JobOptions } from '../../contract/options.js';
import { jobEnvironment } from './environment.js';
import { type CommandPlan, recognise } from './index.js';
import { knobNames } from './placeholders.js';

const run = promisify(execFile);
/** An end that the kernel does not let happen is waited for so much longer, in ms. */
const LETS_GO_MS = 5000;
/** How long an interpreter is asked that nobody named, in ms. */
const LONGEST_GUESS_MS = 30_000;

/** Prints Python's version, and torch's without importing it, which takes seconds; its own file is read first, as metadata takes longer. */
const ASK = `
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
v = ""
if spec:
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as text:
            line = next(line for line in text if line.startswith("__version__"))
        v = line.split("=")[1].strip(" '" + '"' + os.linesep)
    except Exception:
        pass
    if not v:
        try:
            import importlib.metadata
            v = importlib.metadata.version("torch")
        except Exception:
            v = "unknown"
print("%d.%d.%d" % sys.version_info[:3], v)
`;

/** The Python interpreter of a command, and the versions that it has told. */
export interface Interpreter {
  path: string;
  python: string | null;
  /** Null: it has none. */
  torch: string | null;
}

/** Asks the interpreter for torch; null: the command has none. Throws OOMTUNE_COMMAND_MISSING, OOMTUNE_COMMAND_SILENT or OOMTUNE_TORCH_MISSING. */
export async function askInterpreter(
  plan: CommandPlan,
  cwd: string,
  env: Record<string, string>,
): Promise<Interpreter | null> {
  const path = plan.program.kind === 'python' ? plan.program.interpreter?.path : undefined;
  if (path === undefined) return null;
  const told = await versionsOf(path, cwd, env);
  if (told instanceof TimeUp) {
    throw new OomtuneError(
      'OOMTUNE_COMMAND_SILENT',
      `The interpreter ${path} did not say which torch it has within ${longestStartMs() / 1000} s.`,
      `See why it starts so slowly (${path} -c pass): a loaded machine, a slow file system, a sitecustomize. OOMTUNE_START_SECONDS sets how long is waited.`,
    );
  }
  if (told === null) {
    throw new OomtuneError(
      'OOMTUNE_COMMAND_MISSING',
      `The interpreter ${path} cannot be run.`,
      'Check the command, or name the interpreter by its full path.',
    );
  }
  if (told.torch === null && plan.isPythonTorch === true) {
    const others = ['/usr/bin/python3', '/usr/local/bin/python3', 'python3', 'python'].filter(
      (other) => other !== path,
    );
    const found = await firstWithTorch(others, cwd, env);
    throw new OomtuneError(
      'OOMTUNE_TORCH_MISSING',
      `The interpreter ${path} has no torch, which the script imports.`,
      found === null
        ? `Install torch for ${path}, or name an interpreter that has it in the command.`
        : `Use ${found.path} in the command: it has torch ${found.torch}.`,
    );
  }
  return { path, ...told };
}

/** The first of some interpreters that has torch; null if none has. */
export async function firstWithTorch(
  paths: string[],
  cwd: string,
  env: Record<string, string>,
): Promise<{ path: string; torch: string } | null> {
  for (const path of paths) {
    const told = await versionsOf(path, cwd, env, Math.min(LONGEST_GUESS_MS, longestStartMs()));
    if (told !== null && 'torch' in told && told.torch !== null) return { path, torch: told.torch };
  }
  return null;
}

/** Null: the interpreter does not run; TimeUp: it has not answered. */
async function versionsOf(
  path: string,
  cwd: string,
  env: Record<string, string>,
  timeout = longestStartMs(),
): Promise<Omit<Interpreter, 'path'> | TimeUp | null> {
  try {
    // An interpreter stuck in a file system that does not answer may not end
    const asked = () => run(path, ['-c', ASK], { cwd, env, timeout, killSignal: 'SIGKILL' });
    const { stdout } = await within(timeout + LETS_GO_MS, null, asked);
    // Before that line may be what a sitecustomize prints
    const [python, torch] = stdout.trim().split('\n').at(-1)?.split(' ') ?? [];
    return { python: python || null, torch: torch || null };
  } catch (error) {
    if (error instanceof TimeUp) return error;
    if ((error as { killed?: boolean }).killed) return new TimeUp(timeout);
    return null; // not there, not executable, or no Python at all: the caller says so
  }
}

/** Refuses a command that could not begin on this host. Throws as askInterpreter does. */
export async function preflight(command: string[], options: JobOptions, environment: NodeJS.ProcessEnv): Promise<void> {
  const env = jobEnvironment(options, environment);
  findCommand(command[0] as string, env, options.cwd);
  if (!options.tune) return;
  const worldSize = options.gpus > 1 ? options.gpus : null;
  const plan = await recognise(command, {
    cwd: options.cwd,
    env,
    preset: options.preset,
    worldSize,
    knobs: knobNames(command),
  });
  await askInterpreter(plan, options.cwd, env);
}
