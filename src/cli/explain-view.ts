import { formatBytes } from '../common/size.js';
import { formatSpan } from '../common/span.js';
import { plain } from '../common/terminal.js';
import { isHidden, type JobRecord } from '../contract/job.js';
import { asRecord, lifeOf, type MemoryBreakdown, type ProbeRecord } from '../contract/measurement.js';
import type { Recommendation } from '../contract/recommendation.js';
import { rungName, sameRung } from '../contract/rung.js';
import { isForTurn } from '../contract/waiting.js';
import { withheldNote } from '../daemon/withheld.js';
import type { MemoryTrace } from '../store/index.js';
import { jobBudget, jobMemory } from '../worker/memory/memory-report.js';
import { nothingFits, unsaid } from './errors.js';
import { askedWords, diedWhere, exitWords, noted, versionWords } from './explain-facts.js';
import { drawingWidth, memoryBar } from './memory-bar.js';
import { memoryOverTime } from './memory-over-time.js';
import type { Paint } from './output.js';
import { rungTable } from './rung-table.js';
import { hasEnded, slurmText, startRemedy } from './status-view.js';
import { oneLine } from './table.js';
import {
  ago,
  bytesOr,
  comparisonText,
  cutWords,
  plural,
  rehearsalText,
  seconds,
  settingWords,
  shellWords,
} from './words.js';

export interface Origin {
  came: string;
  /** Where to see what a job has printed. */
  output: (job: JobRecord) => string;
}
export const QUEUED: Origin = {
  came: 'It was submitted',
  output: ({ job }) => `\`oomtune logs ${job}\` shows its output.`,
};
export const FOREGROUND: Origin = {
  came: 'It was called in the foreground',
  output: ({ launches }) => `Its output is in ${launches.at(-1)?.dir}/log.`,
};

/** Tells why a job waits, or how its configuration was found and how it went. */
export function explainJob(
  raw: JobRecord,
  recorded: Recommendation | null,
  trace: MemoryTrace | null,
  paint: Paint,
  origin = QUEUED,
): string {
  const job = plain(raw);
  const recommendation = plain(recorded);
  const lines = [`${paint('bold', job.job)}  ${job.name}: ${shellWords(job.command)}`, ''];
  lines.push(opening(job, origin.came));
  const budget = jobBudget(job, recommendation, trace?.budget_bytes ?? null);
  if (!isHidden(job)) lines.push(askedWords(job, budget));
  if (job.versions) lines.push(versionWords(job.versions));
  const inSlurm = slurmText(job);
  if (inSlurm !== null) lines.push(`In Slurm it is ${inSlurm}; its script is ${job.slurm?.script}.`);
  const seen = job.journal.map((one) => asRecord(one));
  if (isHidden(job))
    lines.push('', `Its command, its output and its search are for ${job.owner} and administrators to see.`);
  else if (seen.length > 0 && !wasSearched(job.launches, seen))
    lines.push('', 'No search was needed: it runs as it stands, and was measured meanwhile.', ...probes(seen, paint));
  else if (seen.length > 0) lines.push('', 'The search:', ...probes(seen, paint));
  else if (recommendation !== null && job.config !== null) {
    lines.push(
      '',
      `No search was needed: ${recommendation.key} was verified ${ago(recommendation.verified_at)} (\`oomtune explain ${recommendation.key}\` tells how).`,
    );
  }
  if (job.config !== null) {
    lines.push('', `It ran with ${settingWords(job.config)}.`);
    const compared = comparisonText(recommendation?.comparison);
    if (compared !== null && recommendation !== null && sameRung(job.config, recommendation))
      lines.push(`That was chosen by speed: ${compared}.`);
    if (job.cut) lines.push(`Its batches were cut ${cutWords(job.cut.cut)}: ${job.cut.why}.`);
    if (recommendation?.status === 'demoted') {
      lines.push(
        `That recommendation has since been demoted: ${recommendation.known_bad_micro_batch ?? 'its size'} did not fit.`,
      );
    }
  }
  const rehearsed = rehearsalText(job.rehearsal ?? recommendation?.rehearsal);
  if (rehearsed !== null) lines.push('', `A rehearsal showed what it takes at most: ${rehearsed}.`);
  const shared = sharingWords(job);
  if (shared !== null) lines.push('', shared);
  const runs = job.launches.filter((launch) => launch.purpose === 'run');
  if (runs.length > 1) lines.push('', ...relaunches(runs));
  const memory = jobMemory(job, budget) ?? recommendation?.memory;
  if (memory) lines.push('', ...filled(memory, budget, paint));
  const overTime = trace === null ? [] : memoryOverTime(job, trace, paint);
  if (overTime.length > 0) lines.push('', ...overTime);
  const withheld = withheldNote(job.environment);
  if (withheld !== null) lines.push('', withheld);
  if (job.notes && job.notes.length > 0) lines.push('', ...noted(job.notes, paint));
  if (hasEnded(job)) lines.push('', ending(job, paint));
  if (job.launches.length > 0) lines.push('', origin.output(job));
  return lines.join('\n');
}

/** Whether anything was measured but the job itself: in launches of a search, or in forks that the job has left. */
const wasSearched = (launches: JobRecord['launches'], seen: readonly ProbeRecord[]): boolean =>
  launches.some(({ purpose }) => purpose === 'search') || new Set(seen.map(lifeOf)).size > 1;

export function explainRecommendation(recorded: Recommendation, paint: Paint): string {
  const recommendation = plain(recorded);
  const { peak_bytes: peak, budget_bytes: budget } = recommendation;
  const compared = comparisonText(recommendation.comparison);
  const rehearsed = rehearsalText(recommendation.rehearsal);
  return [
    `${paint('bold', recommendation.key)}  ${recommendation.status}, ${ago(recommendation.verified_at)}`,
    '',
    `On ${recommendation.gpu_model} with a budget of ${formatBytes(budget)}: ${settingWords(recommendation)}.`,
    `The largest micro-batch that fits is ${recommendation.max_micro_batch}${recommendation.known_bad_micro_batch === null ? '' : `; ${recommendation.known_bad_micro_batch} was seen not to`}.` +
      (peak === null
        ? ''
        : ` The recommended one peaks at ${formatBytes(peak)}, ${((1 - peak / budget) * 100).toFixed(1)} % below the budget.`),
    ...(recommendation.memory ? ['', ...filled(recommendation.memory, budget, paint)] : []),
    ...(recommendation.cut ? [`Batches were cut ${cutWords(recommendation.cut)}.`] : []),
    ...(rehearsed === null ? [] : [`A rehearsal showed what it takes at most: ${rehearsed}.`]),
    ...(compared === null ? [] : [`Its rung was chosen by speed: ${compared}.`]),
    '',
    'The search:',
    ...probes(recommendation.probes, paint),
  ].join('\n');
}

/** What `--share auto` found; null: it was beside no other such job. */
function sharingWords({ sharing, state, reason }: JobRecord): string | null {
  if (!sharing) return null;
  const { job, name, verdict, gain } = sharing;
  const beside = `Beside ${job} (${name})`;
  const got = gain === null ? '' : `: both got ${gain.toFixed(2)} times as much done as taking turns`;
  if (verdict === 'measuring') return `${beside} it is measured whether both get more done than taking turns.`;
  if (verdict === 'unmeasured') return `${beside} nothing was measured, as their steps could not be seen: both ran.`;
  if (verdict === 'together') return `${beside} it went on side by side${got}.`;
  const now = state === 'running' && isForTurn(reason) ? ` Now it ${reason}.` : '';
  return `${beside} it is not worth it${got}. The later one stands still until the other has ended.${now}`;
}

/** The parts of the peak, in a bar as long as the budget, or as the peak where that is unknown. */
function filled(memory: MemoryBreakdown, budget: number | null, paint: Paint): string[] {
  const { micro_batch, peak_bytes } = memory;
  const of = budget === null ? '' : ` of ${formatBytes(budget)}`;
  const bar = memoryBar(memory, budget ?? peak_bytes, paint, drawingWidth());
  return [
    `What fills the memory at micro-batch ${micro_batch} (${formatBytes(peak_bytes)}${of}):`,
    ...bar.map((line) => `  ${line}`),
  ];
}

function opening(job: JobRecord, came: string): string {
  const submitted = `${came} ${ago(job.submitted_at)}`;
  switch (job.state) {
    case 'queued': {
      const helps = startRemedy(job) === null ? '' : `\n  ${startRemedy(job)}`;
      if (/^(waits|held|is being) /.test(job.reason ?? '')) return `${submitted} and ${job.reason}.${helps}`;
      return `${submitted} and waits: ${job.reason ?? 'no daemon has looked at it yet (`oomtune daemon status`)'}.${helps}`;
    }
    case 'held':
      return `${submitted} and is held${job.reason ? `: ${job.reason}` : ''}; \`oomtune release ${job.job}\` lets it start.`;
    case 'searching':
      return `${submitted}; its configuration is being searched for${place(job)}.`;
    case 'running':
      return `${submitted} and runs${place(job)} since ${ago(job.started_at)}${standing(job)}.`;
    default:
      return `${submitted}${job.started_at ? ` and started ${ago(job.started_at)}${place(job)}` : ' and never started'}.`;
  }
}

/** Why it does not go on, where `sharingWords` does not say so. */
const standing = ({ reason, sharing }: JobRecord): string =>
  reason === null || (sharing && isForTurn(reason)) ? '' : `; ${reason.replace(/\.$/, '')}`;

const place = (job: JobRecord): string =>
  job.host === null ? '' : ` on ${job.host}${job.devices.length > 0 ? ` (${job.devices.join(', ')})` : ''}`;

function probes(all: readonly ProbeRecord[], paint: Paint): string[] {
  const lines: string[] = [];
  let heading = '';
  for (const probe of all) {
    const life = new Set(all.filter((one) => one.launch === probe.launch && lifeOf(one) <= lifeOf(probe)).map(lifeOf))
      .size;
    const now = `launch ${probe.launch}${life > 1 ? `, life ${life}` : ''}, ${rungName(probe)}`;
    if (now !== heading) lines.push(`  ${paint('cyan', now)}`);
    heading = now;
    const fits = probe.outcome === 'fit';
    const step = probe.step_s === null ? '' : `, ${seconds(probe.step_s)} a step`;
    const result = fits
      ? `${paint('green', 'fit')}, peak ${bytesOr(probe.peak_bytes, 'unknown')}${step}${needs(probe)}`
      : probe.outcome === 'device_oom'
        ? `${paint('yellow', 'out of memory')}${probe.peak_bytes ? `, peak ${formatBytes(probe.peak_bytes)}` : ''}`
        : paint('red', probe.outcome);
    lines.push(
      `    micro-batch ${probe.micro_batch}: ${result}${probe.why ? paint('dim', `  (${oneLine(probe.why)})`) : ''}`,
    );
    if (!fits && probe.evidence) lines.push(`      ${paint('dim', 'evidence:')} ${oneLine(probe.evidence)}`);
  }
  const rungs = rungTable(all, paint);
  return rungs.length === 0 ? lines : [...lines, '', ...rungs];
}

/** How tight a size was for a caching allocator: what of the peak it cannot do without, and how often it gave back its cache. */
function needs({ needed_bytes: needed, alloc_retries: retries }: ProbeRecord): string {
  return [
    ...(needed === undefined ? [] : [`, ${bytesOr(needed)} of it needed`]),
    ...(retries === undefined ? [] : [`, cache given back ${plural(retries, 'time')}`]),
  ].join('');
}

function relaunches(runs: JobRecord['launches']): string[] {
  return [
    `It was launched ${plural(runs.length, 'time')}:`,
    ...runs.map(({ launch, config, why }) => {
      const what = config ? `: ${settingWords(config)}` : '';
      return `  launch ${launch}${what}${why ? `\n    ${oneLine(why)}` : ''}`;
    }),
  ];
}

function ending(job: JobRecord, paint: Paint): string {
  const when = job.ended_at ? ` ${ago(job.ended_at)}` : '';
  const detail = (name: string, value: number | string | null | undefined): string =>
    value ? `\n  ${paint('dim', `${name}:`)} ${oneLine(String(value))}` : '';
  const said = job.failure?.fields;
  const cause = detail('cause', said?.cause);
  const evidence = detail('evidence', unsaid(job.failure?.evidence, job.reason, said?.cause, said?.advice));
  const advice = detail('remedy', said?.advice);
  const why = job.reason ? ` ${job.reason}` : '';
  const { timeSeconds, timeoutSeconds } = job.options;
  // With both the evidence says which of them ended it.
  const limit = timeSeconds && timeoutSeconds === null ? `, its limit of ${formatSpan(timeSeconds)}` : '';
  const exit = exitWords(job);
  const exited = exit === null ? '' : ` (${exit})`;
  const how = job.failure === null ? exit : `${job.failure.class}${exited}`;
  const where = detail('where', diedWhere(job));
  switch (job.state) {
    case 'succeeded':
      return `It ${paint('green', 'succeeded')}${when}.${why}`;
    case 'cancelled':
      return `It was cancelled${exited}${when}.${why}`;
    case 'exhausted':
      return `${paint('red', nothingFits({ ...job.failure, ...job.failure?.fields }))}${why}${where}${cause}${evidence}${advice}`;
    case 'timeout':
      return `It ${paint('red', 'ran out of time')}${exited}${when}${limit}.${why}${where}${cause}${evidence}${advice}`;
    default:
      return `It ${paint('red', 'failed')}${when}${how === null ? '' : `: ${how}`}.${why}${where}${cause}${evidence}${advice}`;
  }
}
