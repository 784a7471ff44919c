import { readFileSync, realpathSync, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { usageError } from '../../common/errors.js';
import type { JobOptions } from '../../contract/options.js';

/** What a job's options say of its environment. */
type Given = Pick<JobOptions, 'env' | 'envFile' | 'cwd'>;

/** Variables that a job takes from another host's daemon, as docs/reference/configuration.md lists them. */
const ALLOWED: readonly RegExp[] = [
  /^(PATH|HOME|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|LANG|LANGUAGE|TZ|TMPDIR|HOSTNAME|PWD)$/,
  /^LC_[A-Z]+$/,
  /^(PYTHONPATH|PYTHONHOME|PYTHONUNBUFFERED|PYTHONHASHSEED|PYTHONWARNINGS|PYTHONDONTWRITEBYTECODE|PYENV_VERSION|PYENV_ROOT)$/,
  /^(VIRTUAL_ENV|CONDA_\w+|LD_LIBRARY_PATH|LD_PRELOAD|LIBRARY_PATH|CPATH)$/,
  /^(OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP)_\w+$/,
  /^(CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|XLA|JAX|TF|HF|TRANSFORMERS|ROCR|HIP|HSA)_\w+$/,
  /^(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK)$/,
  /^(SLURM|PMI|PMIX|OMPI|KUBERNETES)_\w+$/, // the rest in small letters, too: OMPI_MCA_plm
  /^XDG_\w+$/,
  /^(http|https|no)_proxy$/i,
];

/** Names that look allowed but carry secrets. */
const SECRET = /(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL)/i;

/** What oomtune reads of a user's environment; all else that begins with OOMTUNE_ it sets in a job by itself. */
const SETTINGS = /^OOMTUNE_(HOME|REDIS_URL|SYSTEM_SOCKET|HOST|PREFIX|LOG|DEBUG|PYTHON|NATIVE|CUDA_DRIVER|NVML_DRIVER)$/;

/** Of a terminal, a login or a shell: nobody misses them on another host. */
const SESSION = [
  /^(_|SHLVL|OLDPWD|PS[0-4]|IFS|EDITOR|VISUAL|PAGER|MAIL|COLORTERM|LS_COLORS|WINDOWID|VTE_VERSION|SESSION_MANAGER)$/,
  /^(DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|DESKTOP_SESSION|INVOCATION_ID|JOURNAL_STREAM|MANAGERPID|NO_COLOR|FORCE_COLOR)$/,
  /^(BASH_FUNC_|npm_|LESS|HIST|SSH_|DBUS_|TERM_|TMUX|STY$|GPG_|GNOME_|GTK_|QT_|KDE_|OOMTUNE_|SUDO_)/,
];

/** All of an environment but what oomtune itself sets in a job: an outer job's knobs are none of an inner one's. */
function handedOn(from: NodeJS.ProcessEnv): Record<string, string> {
  return pick(from, (name) => !name.startsWith('OOMTUNE_') || SETTINGS.test(name));
}

const isAllowed = (name: string): boolean => !SECRET.test(name) && ALLOWED.some((pattern) => pattern.test(name));

/** Names that a job submitted with this environment would do without on another host; what it could not log in without first. */
export function boundToHost(environment: Record<string, string>): string[] {
  const names = Object.keys(environment).filter((name) => !isAllowed(name));
  const missed = names.filter((name) => !SESSION.some((pattern) => pattern.test(name))).sort();
  return [...missed.filter((name) => SECRET.test(name)), ...missed.filter((name) => !SECRET.test(name))];
}

/** A job's environment: `from`, then `--env-file`, then `--env`; PWD follows `--cwd`. Never log it. Throws OOMTUNE_USAGE. */
export function jobEnvironment(options: Given, from: NodeJS.ProcessEnv): Record<string, string> {
  return { ...inFolder(handedOn(from), options.cwd), ...asked(options, from) };
}

/** The same for a job from another host: of `from`, the environment of the daemon that launches it, only the allow-list. */
export function foreignEnvironment(options: Given, from: NodeJS.ProcessEnv): Record<string, string> {
  return { ...inFolder(pick(from, isAllowed), options.cwd), ...asked(options, from) };
}

function pick(from: NodeJS.ProcessEnv, wanted: (name: string) => boolean): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(from)) if (value !== undefined && wanted(name)) environment[name] = value;
  return environment;
}

/** As `cd` leaves it; a PWD that leads there by another way stays as the user's shell has it. */
function inFolder(environment: Record<string, string>, cwd: string): Record<string, string> {
  const { PWD } = environment;
  if (PWD === undefined || isSameFolder(PWD, cwd)) return environment;
  return { ...environment, PWD: cwd, OLDPWD: PWD };
}

function isSameFolder(one: string, other: string): boolean {
  try {
    return one === other || realpathSync(one) === realpathSync(other);
  } catch {
    return false; // one of them is not there
  }
}

/** What `--env-file` and `--env` give; a name without a value has the one of `from`. */
function asked({ env, envFile, cwd }: Given, from: NodeJS.ProcessEnv): Record<string, string> {
  const entries = envFile === null ? [] : readEnvFile(envFile, cwd);
  for (const entry of env) entries.push(splitEntry(entry, null));
  const environment: Record<string, string> = {};
  for (const [name, value] of entries) {
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
    throw usageError(
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
    // A pipe can be read once, but the file is read at submission and again at launch.
    if (!statSync(path).isFile()) throw new Error('it is no regular file');
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw usageError(`The file ${path} cannot be read.`, 'Check the path given to --env-file.', { cause });
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
