import { execFile } from 'node:child_process';
import { OomtuneError } from '../../common/errors.js';

/** Slurm's own programs ask an absent controller for nine seconds. */
const LONGEST_MS = 20_000;
const MOST_BYTES = 64 * 1024 ** 2;

interface Said {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Times as seconds since 1970, messages in English. */
const forReading = (): NodeJS.ProcessEnv => ({ ...process.env, SLURM_TIME_FORMAT: '%s', LC_ALL: 'C' });

/** Runs one of Slurm's programs. `env`: given to `sbatch`, which hands it on to the job. Throws OOMTUNE_CLUSTER_MISSING where it is not here, and the signal's reason. */
export function slurm(program: string, args: string[], env: NodeJS.ProcessEnv = forReading()): Promise<Said> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      program,
      args,
      { env, timeout: LONGEST_MS, killSignal: 'SIGKILL', maxBuffer: MOST_BYTES },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (code === 'ENOENT') reject(missing(program));
        else if (error?.killed)
          resolve({ code: null, stdout, stderr: `${program} did not answer in ${LONGEST_MS / 1000} s` });
        else resolve({ code: typeof code === 'number' ? code : 1, stdout, stderr: stderr || (error?.message ?? '') });
      },
    );
    child.stdin?.end();
  });
}

/** The same for what has to succeed. Throws OOMTUNE_CLUSTER_REFUSED with what the program says. */
export async function slurmOrThrow(
  program: string,
  args: string[],
  what: string,
  env?: NodeJS.ProcessEnv,
): Promise<string> {
  const said = await slurm(program, args, env);
  if (said.code === 0) return said.stdout.trim();
  throw new OomtuneError(
    'OOMTUNE_CLUSTER_REFUSED',
    `Slurm ${what}: ${complaint(said.stderr)}`,
    '`sinfo` shows its partitions, and whether its controller answers.',
  );
}

/** What is wrong, of all that a program prints: its last line names the cause, the one before it what it was about. */
export function complaint(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map((line) => line.replace(/^\w+: (?:error: )?/, '').trim())
    .filter((line) => line !== '');
  return `${lines.slice(-2).join('; ').replace(/\.+$/, '') || 'it says nothing'}.`;
}

function missing(program: string): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_CLUSTER_MISSING',
    `Slurm's ${program} is not on PATH.`,
    'Call it on a login node of the cluster, where `sinfo` works.',
  );
}

let name: Promise<string> | null = null;

/** The name of this machine's cluster. Throws as `slurmOrThrow`. */
export function clusterName(): Promise<string> {
  name ??= slurmOrThrow('scontrol', ['show', 'config'], 'does not answer').then(
    (text) => /^ClusterName\s*=\s*(\S+)/m.exec(text)?.[1] ?? 'cluster',
  );
  name.catch(() => {
    name = null; // it may answer later
  });
  return name;
}

/** Whether any node of the cluster has GPUs that a job can ask for. */
export async function slurmHasGpus(): Promise<boolean> {
  const said = await slurm('sinfo', ['--noheader', '--format=%G']);
  return said.code === 0 && /\bgpu\b/.test(said.stdout);
}
