import { asRecord } from '../../contract/measurement.js';
import { explainJob, explainRecommendation } from '../explain-view.js';
import { namedJob } from '../jobs.js';
import { statusEntry } from '../status-entry.js';
import type { Verb } from '../verb.js';

export default (async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const [name = '@'] = args;
  const found = await namedJob(store, name, out).catch(async (error: unknown) => {
    // A foreground search leaves no job; its recommendation explains it.
    const recorded = name === '@' ? [] : await store.recommendations.find(name);
    if (recorded.length === 0) throw error;
    return recorded;
  });
  if (Array.isArray(found)) {
    if (out.json) out.document('explain-recommendation', { schema: 1, recommendations: found });
    else out.data(found.map((one) => explainRecommendation(one, out.paint)).join('\n\n'));
    return 0;
  }
  const { followSlurm, withSilence } = await import('../../daemon/index.js');
  if (found.slurm != null) await followSlurm(store);
  const now = found.slurm == null ? found : await namedJob(store, found.job, out);
  const [job = now] = await withSilence(store, [now]);
  const [recommendation, trace] = await Promise.all([
    job.key === null ? null : store.recommendations.get(job.key),
    store.memory.get(job.job),
  ]);
  if (out.json) {
    const probes = job.journal.map((seen) => asRecord(seen));
    const overTime = trace && { budget_bytes: trace.budget_bytes, samples: trace.samples };
    const more = { launches: job.launches, probes, recommendation, memory_over_time: overTime };
    out.document('explain', { schema: 1, ...statusEntry(job, recommendation), ...more });
  } else {
    out.data(explainJob(job, recommendation, trace, out.paint));
  }
  return 0;
}) satisfies Verb;
