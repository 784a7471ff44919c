import { closeSync, openSync } from 'node:fs';
import { usageError } from '../common/errors.js';
import type { JobOptions } from '../contract/options.js';

/** Launchers that start a program several times, by the variable that tells each of its processes how many they are. */
const LAUNCHERS: { name: string; variable: string; counts?: (environment: NodeJS.ProcessEnv) => boolean }[] = [
  { name: 'srun', variable: 'SLURM_STEP_NUM_TASKS', counts: (environment) => !isShellOfSrun(environment) },
  { name: 'mpirun', variable: 'OMPI_COMM_WORLD_SIZE' },
  { name: 'mpirun', variable: 'PMI_SIZE' }, // by `srun --mpi=pmi2`, too
  { name: 'torchrun', variable: 'WORLD_SIZE', counts: (environment) => environment.TORCHELASTIC_RUN_ID !== undefined },
];

/**
 * Throws OOMTUNE_USAGE where oomtune itself was started once for each rank: each would choose sizes and start again by itself, and the ranks
 * of one training would wait for each other for ever.
 */
export function refuseAsRank(verb: string, { tune }: Pick<JobOptions, 'tune'>, environment: NodeJS.ProcessEnv): void {
  if (!tune) return;
  const found = LAUNCHERS.filter(
    ({ variable, counts }) => Number(environment[variable] ?? 1) > 1 && (counts?.(environment) ?? true),
  );
  const [first] = found;
  if (!first) return;
  const { name, variable } = first;
  const unset = found.map((each) => `-u ${each.variable}`).join(' ');
  throw usageError(
    `${name} starts oomtune ${environment[variable]} times, and each would choose the sizes of its own rank, while the ranks of one training need the same.`,
    `Write: oomtune ${verb} … -- ${name} … COMMAND. Where each trains for itself: ${name} … env ${unset} oomtune ${verb} …`,
  );
}

/** A shell by `srun --pty` is alone, whatever number of tasks it asked for; an `srun` in it hands its variable on, but no terminal. */
function isShellOfSrun(environment: NodeJS.ProcessEnv): boolean {
  if (environment.SLURM_PTY_PORT === undefined) return false;
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false; // it has no controlling terminal
  }
}
