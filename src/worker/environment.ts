import { readFileSync, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { OomtuneError } from '../common/errors.js';
import type { JobOptions } from '../store/types.js';

/**
 * What a job gets of the environment of the process that launches it, without being asked: what programs need to find
 * themselves, their libraries, their caches and their GPU. All else (tokens, passwords, the daemon's own settings)
 * stays behind unless `--env` or `--env-file` names it. Listed in docs/reference/configuration.md.
 */
export const ENVIRONMENT_ALLOWED: readonly RegExp[] = [
  /^(PATH|HOME|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|LANG|LANGUAGE|TZ|TMPDIR|HOSTNAME|PWD)$/,
  /^LC_[A-Z]+$/,
  /^(PYTHONPATH|PYTHONHOME|PYTHONUNBUFFERED|PYTHONHASHSEED|PYTHONWARNINGS|PYTHONDONTWRITEBYTECODE|PYENV_VERSION|PYENV_ROOT)$/,
  /^(VIRTUAL_ENV|CONDA_[A-Z0-9_]+|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH)$/,
  /^(OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP)_[A-Z_]+$/,
  /^(CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|XLA|JAX|TF|HF|TRANSFORMERS|ROCR|HIP|HSA)_[A-Z0-9_]+$/,
  /^(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK)$/,
  /^(SLURM|PMI|PMIX|OMPI|KUBERNETES)_[A-Z0-9_]+$/,
  /^XDG_[A-Z_]+$/,
  /^(http|https|no)_proxy$/i,
];

/** Names that look allowed but carry secrets. */
const SECRET = /(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL)/i;

/**
 * The environment of a job: the allow-list applied to `from`, then `--env-file`, then `--env`. Read at launch, on the
 * host that launches; values are never stored. Throws OOMTUNE_USAGE for a name or a line that cannot be read.
 */
export function jobEnvironment(
  options: Pick<JobOptions, 'env' | 'envFile' | 'cwd'>,
  from: Record<string, string | undefined>,
): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(from)) {
    if (value === undefined || SECRET.test(name)) continue;
    if (ENVIRONMENT_ALLOWED.some((pattern) => pattern.test(name))) environment[name] = value;
  }
  const asked = options.envFile === null ? [] : readEnvFile(options.envFile, options.cwd);
  for (const entry of options.env) asked.push(splitEntry(entry, null));
  for (const [name, value] of asked) {
    const given = value ?? from[name];
    if (given !== undefined) environment[name] = given;
  }
  return environment;
}

type Entry = [name: string, value: string | null];

/** `NAME=VALUE`, or `NAME` alone (null). `line`: where it stands in a file, whose text is shown to nobody. */
function splitEntry(entry: string, line: string | null): Entry {
  const at = entry.indexOf('=');
  const name = at < 0 ? entry : entry.slice(0, at);
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || entry.includes('\0')) {
    throw new OomtuneError(
      'OOMTUNE_USAGE',
      line === null
        ? `Expected the name of an environment variable, got ${JSON.stringify(name)}.`
        : `${line} does not start with the name of an environment variable.`,
      'Write NAME (its value is taken from where the job is launched) or NAME=VALUE.',
    );
  }
  return [name, at < 0 ? null : entry.slice(at + 1)];
}

/** `NAME=VALUE` a line; blank lines and `#` comments are skipped, matching quotes around a value are removed. */
function readEnvFile(file: string, cwd: string): Entry[] {
  const path = isAbsolute(file) ? file : join(cwd, file);
  let text: string;
  try {
    // A pipe gives its text once, but the file is read when the job is asked for and again when it is launched.
    if (!statSync(path).isFile()) throw new Error('it is no regular file');
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new OomtuneError('OOMTUNE_USAGE', `The file ${path} cannot be read.`, 'Check the path given to --env-file.', {
      cause,
    });
  }
  const entries: Entry[] = [];
  for (const [at, raw] of text.split(/\r?\n/).entries()) {
    const line = raw.trim().replace(/^export\s+/, '');
    if (line === '' || line.startsWith('#')) continue;
    const [name, value] = splitEntry(line, `Line ${at + 1} of ${path}`);
    const quoted = /^(["'])(.*)\1$/.exec(value?.trim() ?? '');
    entries.push([name, quoted ? (quoted[2] as string) : (value?.trim() ?? null)]);
  }
  return entries;
}
