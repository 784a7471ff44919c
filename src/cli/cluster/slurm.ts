import { realpathSync } from 'node:fs';
import { usageError } from '../../common/errors.js';
import { parseSize } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import type { JobOptions } from '../../contract/options.js';
import type { ToSlurm } from '../../daemon/slurm/submit.js';
import type { Store } from '../../store/index.js';
import type { Output } from '../output.js';
import { configWords } from '../words.js';
import { allotmentOf, hostMibOf, sizedBy } from './allotment.js';
import { recordedFor } from './recorded.js';
import { runWords } from './run-words.js';

const MIB = 1024 ** 2;

/** Options of sbatch that oomtune gives by itself. */
const OURS =
  /^--(array|output|error|input|open-mode|chdir|wrap|parsable|wait|clusters|job-name|test-only|ntasks|nodes|dependency)(=|$)/;

/** The options of sbatch that were asked for; null: a daemon is to run it. Throws OOMTUNE_USAGE. */
export function slurmOptions(given: Record<string, unknown>): string[] | null {
  const { via, sbatch } = given;
  const named = (['partition', 'account', 'qos'] as const).filter((name) => given[name] !== undefined);
  if (via === undefined) {
    const stray = named[0] ?? (sbatch === undefined ? undefined : 'sbatch');
    if (stray === undefined) return null;
    throw usageError(`--${stray} is Slurm's, and a daemon runs this job.`, 'Add --via slurm, or leave it out.');
  }
  if (via !== 'slurm')
    throw usageError(
      `Expected --via to be slurm, got ${JSON.stringify(via)}.`,
      'For Kubernetes see `oomtune manifest`.',
    );
  if (given.share)
    throw usageError(
      '--share is for devices that a daemon shares out.',
      'Ask Slurm for a part of a GPU: --sbatch --gres=shard:1',
    );
  const more = Array.isArray(sbatch) ? sbatch.map(String) : [];
  for (const option of more) {
    if (!/^--[a-z][a-z0-9-]*(=|$)/.test(option))
      throw usageError(
        `Expected --sbatch to be one long option of sbatch, got ${JSON.stringify(option)}.`,
        'Write it as one word: --sbatch --constraint=a100',
      );
    if (OURS.test(option))
      throw usageError(
        `${option.split('=')[0]} is given to sbatch by oomtune.`,
        'See `oomtune submit --help` for --name, --array, --cwd and --after.',
      );
  }
  return [...named.map((name) => `--${name}=${given[name]}`), ...more];
}

/** What the job is to Slurm: sized by its recorded configuration, where there is one. */
export async function toSlurm(
  store: Store,
  command: string[],
  asked: JobOptions,
  options: string[],
  out: Pick<Output, 'note'>,
): Promise<ToSlurm> {
  const found = await recordedFor(store, command, asked);
  const sized = found === null ? asked : sizedBy(asked, found);
  if (found !== null) out.note(`note: sized by ${found.key}: ${configWords(found)}.`);
  const words = [...runWords(sized), ...(sized.envFile === null ? [] : ['--env-file', sized.envFile])];
  const program = [process.execPath, '--', realpathSync(process.argv[1] as string)]; // Node 20 reads our --env-file as its own without the dashes
  if (found !== null) {
    const { gpus, hostMib } = allotmentOf(found);
    return { words, program, options, gpus, hostMib };
  }
  const { slurmHasGpus } = await import('../../daemon/index.js');
  const onHost = isHost(asked.device) || (asked.device === null && !(await slurmHasGpus()));
  const { budget } = asked;
  const known = onHost && budget !== null && !budget.trim().endsWith('%');
  return {
    words,
    program,
    options,
    gpus: onHost ? 0 : asked.gpus,
    hostMib: known ? hostMibOf(Math.ceil(parseSize(budget) / MIB)) : null,
  };
}
