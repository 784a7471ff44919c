import { OomtuneError } from '../../common/errors.js';
import type { JobRecord } from '../../contract/job.js';
import { asRecord } from '../../contract/measurement.js';
import { givenOptions } from '../../daemon/http/repeat.js';
import type { Store } from '../../store/index.js';
import { jobBudget } from '../../worker/memory/memory-report.js';
import type { Context } from '../context.js';
import { explainJob, explainRecommendation, FOREGROUND, type Origin, QUEUED } from '../explain-view.js';
import { foregroundJob } from '../foreground-jobs.js';
import { namedJob } from '../jobs.js';
import { statusEntry } from '../status-entry.js';
import type { Verb } from '../verb.js';
import { ago } from '../words.js';

export default (async ({ args }, context) => {
  const { out } = context;
  const [name = '@'] = args;
  const store = await context.store().catch((error: unknown) => withoutRedis(error));
  const inForeground = foregroundJob(name);
  if (store instanceof OomtuneError) {
    if (inForeground === null) throw store;
    out.note(`note: ${store.message} What it knows of queued jobs and of configurations is left out.`);
    return explained(context, inForeground, FOREGROUND, null);
  }
  const found = await namedJob(store, name, out).catch(async (error: unknown) => {
    const recorded = name === '@' ? [] : await store.recommendations.find(name);
    if (recorded.length > 0) return recorded;
    if (inForeground === null) throw error;
    return inForeground;
  });
  if (Array.isArray(found)) {
    if (out.json) out.document('explain-recommendation', { schema: 1, recommendations: found });
    else out.data(found.map((one) => explainRecommendation(one, out.paint)).join('\n\n'));
    if (inForeground !== null)
      out.note(
        `note: ${inForeground.job}, ${ago(inForeground.submitted_at)} in the foreground, ${inForeground.state}: \`oomtune explain ${inForeground.job}\`.`,
      );
    return 0;
  }
  if (inForeground !== null && (found === inForeground || found.submitted_at < inForeground.submitted_at))
    return explained(context, inForeground, FOREGROUND, store);
  const { asItRan, followSlurm, withSilence } = await import('../../daemon/index.js');
  if (found.slurm != null) await followSlurm(store);
  const now = found.slurm == null ? found : await namedJob(store, found.job, out);
  const [job = now] = await withSilence(store, [now]);
  return explained(context, asItRan(job), QUEUED, store);
}) satisfies Verb;

/** The error, if a Redis is what is missing: a command in the foreground left a record in its folder. Throws any other. */
function withoutRedis(error: unknown): OomtuneError {
  if (error instanceof OomtuneError && error.code.startsWith('OOMTUNE_REDIS_')) return error;
  throw error;
}

async function explained({ out }: Context, job: JobRecord, origin: Origin, store: Store | null): Promise<number> {
  const [recommendation, trace] = await Promise.all([
    job.key === null || store === null ? null : store.recommendations.get(job.key),
    store === null ? null : store.memory.get(job.job),
  ]);
  if (out.json) {
    const probes = job.journal.map((seen) => asRecord(seen));
    const overTime = trace && { budget_bytes: trace.budget_bytes, samples: trace.samples };
    const asked = {
      folder: job.options.cwd,
      options: givenOptions(job.options),
      budget_bytes: jobBudget(job, recommendation, trace?.budget_bytes ?? null),
    };
    const more = {
      ...asked,
      versions: job.versions ?? null,
      notes: job.notes ?? [],
      launches: job.launches,
      probes,
      recommendation,
      memory_over_time: overTime,
    };
    out.document('explain', { schema: 1, ...statusEntry(job, recommendation), ...more });
  } else {
    out.data(explainJob(job, recommendation, trace, out.paint, origin));
  }
  return 0;
}
