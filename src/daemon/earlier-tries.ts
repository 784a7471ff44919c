import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { StoredJob } from '../store/index.js';

/** Removes the folders of a job's earlier tries, except of launches that may still run on a silent host that shares this home. */
export function dropEarlierTries(runs: string, { job, epoch }: Pick<StoredJob, 'job' | 'epoch'>): void {
  if (epoch === 1) return;
  const folder = join(runs, job);
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) {
    const dir = join(folder, name);
    if (!name.startsWith(`${epoch}.`) && existsSync(join(dir, 'exit.json')))
      rmSync(dir, { recursive: true, force: true });
  }
}
