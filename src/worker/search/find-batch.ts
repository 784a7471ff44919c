import { rmSync } from 'node:fs';
import { stateFolder } from '../../common/home.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { FindBatchReport } from '../../contract/reports.js';
import { searchedKnob } from '../knob/find-knob.js';
import { withRecordedKnobs } from '../knob/recorded-knobs.js';
import { giveBack, StillRunning } from '../launch/still-running.js';
import { prepare } from '../prepare.js';
import { rehearsedSearch } from '../rehearsal/rehearsed-search.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { findBatchReport, recommendationOf } from './report.js';
import { Search } from './search.js';

/** Finds, verifies and records the largest configuration; see the report's `status`. Throws for a wrong request, or an abort. */
export async function findBatch(asked: WorkRequest, deps: WorkDeps): Promise<FindBatchReport> {
  const started = Date.now();
  const request = await withRecordedKnobs(asked, deps);
  const target = await prepare(request, deps);
  const lease = await target.memory.acquire();
  let left: StillRunning | null = null;
  try {
    await deps.persist({ state: 'searching', reason: null, key: target.key });
    const seconds = (): number => (Date.now() - started) / 1000;
    const { report, recommendation } =
      request.knob === undefined
        ? await searched(request, deps, target, seconds)
        : await searchedKnob({ ...request, knob: request.knob }, deps, target, seconds);
    if (recommendation !== null) await (await deps.records()).recommendations.put(recommendation, request.jobId);
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

async function searched(
  request: WorkRequest,
  deps: WorkDeps,
  target: Target,
  seconds: () => number,
): Promise<{ report: FindBatchReport; recommendation: Recommendation | null }> {
  const outcome = await new Search(request, deps, target, 'search').run();
  const { action } = outcome;
  if (action.type === 'found' && request.options.probeEval)
    return rehearsedSearch({ request, deps, target, launches: outcome.allLaunches }, outcome, action.answer, seconds);
  const recommendation =
    action.type === 'found' ? recommendationOf(target, outcome, action.answer, new Date().toISOString()) : null;
  return { report: await findBatchReport(request, target, outcome, seconds()), recommendation };
}
