import { usageError } from '../common/errors.js';
import type { JobOptions } from '../contract/options.js';

/** Launchers that start a program several times, by the variable that tells each of its processes how many they are. */
const LAUNCHERS = [
  // a shell by `srun --pty` is alone, whatever number of tasks it asked for
  { name: 'srun', variable: 'SLURM_STEP_NUM_TASKS', unless: 'SLURM_PTY_PORT' },
  { name: 'mpirun', variable: 'OMPI_COMM_WORLD_SIZE' },
  { name: 'mpirun', variable: 'PMI_SIZE' },
  { name: 'torchrun', variable: 'WORLD_SIZE', only: 'TORCHELASTIC_RUN_ID' },
] as const satisfies { name: string; variable: string; unless?: string; only?: string }[];

/**
 * Throws OOMTUNE_USAGE where oomtune itself was started once for each rank: each would choose sizes and start again by itself, and the ranks
 * of one training would wait for each other for ever.
 */
export function refuseAsRank(verb: string, { tune }: Pick<JobOptions, 'tune'>, environment: NodeJS.ProcessEnv): void {
  if (!tune) return;
  for (const { name, variable, ...when } of LAUNCHERS) {
    const count = Number(environment[variable] ?? 1);
    if (!(count > 1)) continue;
    if ('unless' in when && environment[when.unless] !== undefined) continue;
    if ('only' in when && environment[when.only] === undefined) continue;
    throw usageError(
      `${name} starts oomtune ${count} times, and each would choose the sizes of its own rank, while the ranks of one training need the same.`,
      `Write: oomtune ${verb} … -- ${name} … COMMAND. Where each trains for itself: ${name} … env -u ${variable} oomtune ${verb} …`,
    );
  }
}
