import { factsOf, type JobRecord } from '../contract/job.js';
import type { Recommendation } from '../contract/recommendation.js';
import { shown } from '../contract/rung.js';
import { slurmId } from '../contract/slurm.js';
import type { ForegroundEntry, StatusEntry } from '../contract/verbs.js';
import type { Store } from '../store/index.js';
import { jobBudget, jobMemory } from '../worker/memory/memory-report.js';

/** Foreground commands for `status --json`: they have a lease but no record. */
export async function foregroundEntries(store: Store): Promise<ForegroundEntry[]> {
  return (await store.leasing.foreground()).map((lease) => ({
    job: lease.owner,
    ...lease.foreground,
    owner: lease.user ?? null,
    host: lease.host,
    pid: lease.process.pid,
    devices: lease.devices.map(({ id }) => id),
    budget_bytes: lease.bytes,
    started_at: new Date(lease.taken_at).toISOString(),
  }));
}

/** The jobs of `status --json`, with their recommendations. */
export async function statusEntries(store: Store, jobs: JobRecord[]): Promise<StatusEntry[]> {
  const keys = [...new Set(jobs.flatMap(({ key }) => (key === null ? [] : [key])))];
  const found = await Promise.all(keys.map((key) => store.recommendations.get(key)));
  const byKey = new Map(found.map((one, at) => [keys[at], one]));
  return jobs.map((job) => statusEntry(job, byKey.get(job.key ?? '') ?? null));
}

export function statusEntry(job: JobRecord, found: Recommendation | null) {
  return {
    ...factsOf(job),
    failure: job.failure,
    command: job.command,
    priority: job.options.priority,
    tags: job.options.tags ?? [],
    paused: job.pause === 'on',
    sharing: job.sharing ?? null,
    time_limit_s: job.options.timeSeconds ?? null,
    config: job.config && shown(job.config),
    cut: job.cut ?? null,
    key: job.key,
    slurm:
      job.slurm == null
        ? null
        : { cluster: job.slurm.cluster, job: slurmId(job.slurm), partition: job.slurm.partition ?? null },
    memory: jobMemory(job, jobBudget(job, found, null)) ?? found?.memory ?? null,
  };
}
