import { rmSync } from 'node:fs';
import { OomtuneError } from '../../common/errors.js';
import { stateFolder } from '../../common/home.js';
import { HOST } from '../../contract/device-id.js';
import type { EstimateReport } from '../../contract/estimate.js';
import { prepare } from '../prepare.js';
import type { Records, WorkDeps, WorkRequest } from '../types.js';
import type { Card } from './cards.js';
import { Following } from './following.js';
import { estimateReport } from './report.js';

/** In the place of Redis: nothing is reserved or recorded for an estimate. */
export const WITHOUT_RECORDS: Records = {
  recommendations: { get: async () => null, put: unused, demote: unused },
  leasing: { acquire: unused },
};

function unused(): never {
  throw new Error('an estimate reserves and records nothing');
}

/** Follows the command's steps on a card that is not there, at some sizes, and works out what it needs at any. */
export async function estimate(
  request: WorkRequest,
  deps: WorkDeps,
  { cards, sizes }: { cards: Card[]; sizes: number[] },
): Promise<EstimateReport> {
  const target = await prepare({ ...request, options: { ...request.options, device: HOST } }, deps);
  if (target.worldSize > 1) {
    throw new OomtuneError(
      'OOMTUNE_NOT_ESTIMATED',
      `The command starts ${target.worldSize} processes, and what they exchange is not followed.`,
      'Estimate one of them: give the script itself as the command, with the batch of one device.',
    );
  }
  try {
    const followed = await new Following(request, deps, target).run();
    return estimateReport(target, followed, { cards, sizes, headroomPct: request.options.headroomPct });
  } finally {
    rmSync(stateFolder('runs', request.jobId), { recursive: true, force: true });
  }
}
