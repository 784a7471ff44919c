import { rmSync } from 'node:fs';
import { stateFolder } from '../../common/home.js';
import type { FindBatchReport } from '../../contract/reports.js';
import { giveBack, StillRunning } from '../launch/still-running.js';
import { prepare } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { findBatchReport, recommendationOf } from './report.js';
import { Search } from './search.js';

/** Finds, verifies and records the largest configuration; see the report's `status`. Throws for a wrong request, or an abort. */
export async function findBatch(request: WorkRequest, deps: WorkDeps): Promise<FindBatchReport> {
  const started = Date.now();
  const target = await prepare(request, deps);
  const lease = await target.acquire();
  let left: StillRunning | null = null;
  try {
    await deps.persist({ state: 'searching', reason: null, key: target.key });
    const outcome = await new Search(request, deps, target, 'search').run();
    if (outcome.action.type === 'found') {
      const recommendation = recommendationOf(target, outcome, outcome.action.answer, new Date().toISOString());
      await (await deps.records()).recommendations.put(recommendation, request.jobId);
    }
    const seconds = (Date.now() - started) / 1000;
    const report = await findBatchReport(request, target, outcome, seconds);
    deps.progress({ type: 'found', report });
    // The folders of a search are kept only if it failed.
    if (report.status === 'found') rmSync(stateFolder('runs', request.jobId), { recursive: true, force: true });
    return report;
  } catch (error) {
    if (error instanceof StillRunning) left = error;
    throw error;
  } finally {
    await giveBack(lease, left);
  }
}
