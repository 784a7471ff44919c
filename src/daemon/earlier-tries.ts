import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { stateFolder } from '../common/home.js';
import type { StoredJob } from '../store/index.js';

/**
 * Removes what earlier tries of a job left on disk: a retry begins anew. A launch that has not ended stays, as it may be under
 * way on a host that cannot be heard and shares this home.
 */
export function dropEarlierTries({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>): void {
  if (epoch === 1) return;
  const folder = join(stateFolder('runs'), job);
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) {
    const dir = join(folder, name);
    if (!name.startsWith(`${epoch}.`) && existsSync(join(dir, 'exit.json')))
      rmSync(dir, { recursive: true, force: true });
  }
}
