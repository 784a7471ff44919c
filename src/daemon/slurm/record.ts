import { join } from 'node:path';
import { readText } from '../../common/regular-file.js';
import { readJson } from '../../contract/fields.js';
import { foregroundRecord, type JobRecord } from '../../contract/job.js';
import { RECORD } from './script.js';

/** A job of Slurm with what its `oomtune run` tells of its search and launches, as far as this user can read that; any other job as it is. */
export function asItRan<J extends JobRecord>(job: J): J {
  if (job.slurm == null) return job;
  const ran = readJson(foregroundRecord, readText(join(job.slurm.folder, RECORD)))?.job;
  if (ran === undefined) return job;
  const { journal, launches, notes, versions, budget_bytes, rehearsal } = ran;
  return {
    ...job,
    ...{ journal, launches, notes, versions, budget_bytes, rehearsal },
    cut: job.cut ?? ran.cut,
    config: job.config ?? ran.config,
    key: job.key ?? ran.key,
  };
}
