import { extname } from 'node:path';
import { OomtuneError, usageError } from '../../common/errors.js';
import type { FindBatchReport, MemoryReport } from '../../contract/reports.js';
import { codeOfMisfit, interrupted, nothingFits, renderError, unsaid } from '../errors.js';
import { renderFound } from '../find-batch-view.js';
import { toJobOptions, toKnob } from '../job-options.js';
import { refuseAsRank } from '../launched-as-rank.js';
import { tellsMore } from '../tells-more.js';
import type { Verb } from '../verb.js';
import { checkWritable, writeResult } from '../whole-file.js';
import { workDeps } from '../work.js';

export default (async ({ options, command }, context) => {
  const jobOptions = toJobOptions(options, command);
  refuseAsRank('find-batch', jobOptions, process.env);
  const knob = toKnob(options);
  if (knob !== null && jobOptions.probeEval) {
    throw usageError(
      '--probe-eval cannot be had with --knob.',
      'Search the knob first, then let run --probe-eval rehearse the job with what was found.',
    );
  }
  const plot = plotFile(options.plot);
  const { out } = context;
  const [{ deps, request, around }, { findBatch }] = await Promise.all([
    workDeps(context, 'find-batch', jobOptions, command, options.notify),
    import('../../worker/index.js'),
  ]);
  const report = await around(() => findBatch(knob === null ? request : { ...request, knob }, deps));
  context.progress.close();
  if (context.signal.aborted) throw interrupted();
  if (plot !== null && report.memory !== null) {
    await writeResult(plot, await drawn(plot, report, report.memory));
  } else if (plot !== null && report.status === 'found') {
    out.note(`Nothing was drawn into ${plot}: no probe could measure its peak.`);
  }
  if (out.json) out.document('find-batch', report);
  else if (report.status === 'found') out.data(renderFound(report, out.paint));
  else {
    renderError(notFound(report), out);
    if (report.probes.length > 0) out.note(tellsMore(request.jobId, context));
  }
  return report.status === 'found' ? 0 : report.status === 'exhausted' ? 3 : 4;
}) satisfies Verb;

function notFound(report: FindBatchReport): OomtuneError {
  const { class: kind = 'unknown', cause = '', evidence, advice } = report.failure ?? {};
  const notes = (report.notes ?? [])
    .filter((note) => note !== evidence)
    .map((note) => `\n${note}`)
    .join('');
  const proof = unsaid(evidence, cause, advice, notes);
  const shown = proof === null ? '' : `\nEvidence: ${proof}`;
  if (report.status === 'exhausted') {
    return new OomtuneError(
      codeOfMisfit(report.failure?.reason),
      nothingFits(report.failure),
      `${advice ?? 'Give a larger --budget.'}${notes}${shown}`,
    );
  }
  if (report.failure?.class === 'timeout') {
    const message = `A launch of the search ran out of time: ${report.failure.evidence ?? 'nothing says how'}`;
    const advice = `${report.failure.advice ?? 'Give it more time by --timeout.'}${notes}`;
    return new OomtuneError('OOMTUNE_TIME_LIMIT', message, advice);
  }
  const what = kind.endsWith('_oom') ? '' : ', and not for want of memory';
  return new OomtuneError(
    'OOMTUNE_JOB_FAILED',
    `The job failed${what}: ${kind}. ${cause}`.trim(),
    `${advice ?? 'Run the command alone and mend what it says.'}${shown}${notes}`,
  );
}

/** In the form that the file's name asks for. */
async function drawn(file: string, report: FindBatchReport, memory: MemoryReport): Promise<string | Buffer> {
  const { picture, scene } = await import('../plot/picture.js');
  if (extname(file).toLowerCase() === '.svg') return picture(report, memory);
  const { png } = await import('../plot/png.js');
  return png(scene(report, memory));
}

/** The file of `--plot`; null: none. Throws OOMTUNE_USAGE for one that cannot be written. */
function plotFile(value: unknown): string | null {
  if (value === undefined) return null;
  const file = String(value);
  if (!['.svg', '.png'].includes(extname(file).toLowerCase())) {
    throw usageError(
      `Expected --plot to be a file that ends in .svg or .png, got ${JSON.stringify(file)}.`,
      'SVG stays sharp at any size; PNG is for what shows no SVG.',
    );
  }
  checkWritable(file, 'plot');
  return file;
}
