import { z } from 'zod';
import { readJson } from '../../contract/fields.js';
import type { JobAction, JobPage, PartedPeak, ProbeStep } from '../../contract/http.js';
import { ENDED_STATES, factsOf, jobState } from '../../contract/job.js';
import { lifeOf, type MemoryBreakdown, type Observation } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { rungName, rungOf, sameRung } from '../../contract/rung.js';
import { type Store, type StoredJob, shortWait } from '../../store/index.js';
import { curvesOf } from '../../tuner/curve.js';
import { peakBytes } from '../../tuner/index.js';
import { jobBudget, jobMemory, partsOf } from '../../worker/index.js';
import { withSilence } from '../silence.js';
import { asItRan } from '../slurm/record.js';
import type { JobFigures } from './job-figures.js';
import type { Reasons } from './reasons.js';
import { repeatCommand } from './repeat.js';

const STEPS_SHOWN = 500;
const TEXT_SHOWN = 2000;

/** Null: no such job. `ledgerBudget`: its last launch's budget, if that ran here. */
export async function jobPage(
  { store, reasons, figures }: { store: Store; reasons: Reasons; figures: JobFigures },
  id: string,
  ledgerBudget: number | null,
): Promise<JobPage | null> {
  const found = await store.jobs.get(id);
  if (found === null || found.job !== id) return null;
  const [heard = found] = await withSilence(store, [found]);
  const job = asItRan(heard);
  const recorded = job.key === null ? null : await store.recommendations.get(job.key);
  const budget = jobBudget(job, recorded, ledgerBudget);
  const memory = jobMemory(job, budget) ?? recorded?.memory ?? null;
  return {
    ...factsOf(job),
    summary: job.reason === null ? null : shortWait(job.reason),
    config: job.config,
    key: job.key,
    command: job.command.slice(0, 500).map((word) => cut(word)),
    failure: failureOf(job),
    cwd: job.options.cwd,
    priority: job.options.priority,
    time_limit_s: job.options.timeSeconds ?? null,
    position: job.state === 'queued' ? await figures.position(job) : null,
    after: job.options.after,
    dependencies: await dependencies(store, job),
    repeat: repeatCommand(job).slice(0, 1000).map(cut),
    figures: await figures.of(job),
    budget_bytes: budget,
    cancelling: job.cancelAsked !== null && !ENDED_STATES.includes(job.state),
    launches: job.launches.map(({ launch, purpose, config: used }) => {
      return { launch, purpose, micro_batch: used?.micro_batch ?? null, accumulation: used?.accumulation ?? null };
    }),
    steps: stepsOf(job, recorded, reasons),
    curves: curvesOf(job.journal, budget),
    memory: memory === null ? null : partedPeak(memory),
    recommendation: recorded === null ? null : shown(recorded),
    actions: actionsOf(job),
  };
}

/** The jobs that it waits for, or waited for, as they are now; a state of null: forgotten. */
async function dependencies(store: Store, { options }: StoredJob): Promise<JobPage['dependencies']> {
  const any = options.afterAny ?? [];
  const ids = [...options.after, ...any];
  if (ids.length === 0) return [];
  const records = await store.jobs.fields(ids, ['name', 'state']);
  return ids.map((job, at) => ({
    job,
    name: readJson(z.string(), records[at]?.[0]),
    state: jobState.safeParse(records[at]?.[1]).data ?? null,
    must_succeed: at < options.after.length,
  }));
}

function stepsOf(job: StoredJob, found: Recommendation | null, reasons: Reasons): ProbeStep[] {
  const from = Math.max(0, job.journal.length - STEPS_SHOWN);
  return job.journal.slice(from).map((one, at): ProbeStep => {
    const asked = { launch: one.launch, life: one.life, micro_batch: one.micro_batch, ...one.rung };
    return {
      n: from + at + 1,
      launch: one.launch,
      rung: rungName(one.rung),
      ...one.rung,
      micro_batch: one.micro_batch,
      accumulation: one.accumulation,
      outcome: one.outcome,
      ambiguous: one.ambiguous,
      phase: one.phase,
      peak_bytes: peakBytes(one.peaks),
      step_s: one.step_s,
      samples_per_s: one.outcome === 'fit' ? (one.samples_per_s ?? null) : null,
      retries: one.alloc_retries,
      evidence: one.evidence === null ? null : cut(one.evidence),
      why: reasons.of(job.job, asked) ?? whyRecorded(found, one),
    };
  });
}

/** The recommendation's reason for this size, for jobs whose events have expired. */
function whyRecorded(found: Recommendation | null, one: Observation): string | null {
  const probe = found?.probes.find(
    (probe) => lifeOf(probe) === lifeOf(one) && probe.micro_batch === one.micro_batch && sameRung(probe, one.rung),
  );
  return probe?.why ?? null;
}

function partedPeak(memory: MemoryBreakdown): PartedPeak {
  const { micro_batch, accumulation, peak_bytes, peak_in } = memory;
  return { micro_batch, accumulation, peak_bytes, peak_in, parts: partsOf(memory) };
}

function failureOf({ failure }: StoredJob): JobPage['failure'] {
  if (failure === null) return null;
  const word = (name: string): string | null => {
    const value = failure.fields[name];
    return typeof value === 'string' && value !== '' ? cut(value) : null;
  };
  const evidence = failure.evidence === null ? null : cut(failure.evidence);
  return { class: failure.class, evidence, cause: word('cause'), advice: word('advice') };
}

function shown(found: Recommendation): JobPage['recommendation'] {
  const { key, status, micro_batch, max_micro_batch, known_bad_micro_batch, accumulation, effective_batch } = found;
  const { peak_bytes, budget_bytes, samples_per_s, verified_at } = found;
  return {
    ...{ key, status, micro_batch, max_micro_batch, known_bad_micro_batch, accumulation, effective_batch },
    ...rungOf(found),
    ...{ peak_bytes, budget_bytes, samples_per_s, verified_at },
  };
}

function actionsOf({ state, launches, cancelAsked, slurm }: StoredJob): JobAction[] {
  if (ENDED_STATES.includes(state)) return ['retry'];
  const actions: JobAction[] = cancelAsked === null ? ['cancel'] : [];
  if (state === 'held') actions.push('release');
  const waits = launches.length === 0 && slurm == null;
  if (state === 'queued' && waits) actions.push('hold');
  if ((state === 'queued' || state === 'held') && waits) actions.push('edit');
  return actions;
}

const cut = (text: string): string => (text.length > TEXT_SHOWN ? `${text.slice(0, TEXT_SHOWN)}…` : text);
