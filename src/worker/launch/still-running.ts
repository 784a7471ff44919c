import { OomtuneError } from '../../common/errors.js';
import type { Exit } from '../../contract/launch.js';
import type { Run } from '../../runtime/types.js';
import type { Lease } from '../types.js';

/** A killed process of a launch is still there, so nothing can be started in its place. */
export class StillRunning extends OomtuneError {
  constructor(
    readonly run: Run,
    readonly exit: Exit,
  ) {
    super(
      'OOMTUNE_STILL_RUNNING',
      exit.error ?? 'Something of the command was killed and is still there: the kernel has not let go of it.',
      STILL_RUNNING_ADVICE,
    );
  }
}

export const STILL_RUNNING_ADVICE =
  'A file system or a GPU that does not answer is the usual reason. Its devices stay reserved until it is gone.';

/** Releases the lease, or leaves it to what is left of a launch. */
export async function giveBack(lease: Lease, left: { run: Run; exit: Exit } | null): Promise<void> {
  if (left === null) return lease.release();
  await lease.leave(left.run.dir, left.exit.stuck ?? []);
}
