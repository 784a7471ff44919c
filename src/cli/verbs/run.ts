import { constants } from 'node:os';
import { type ErrorCode, OomtuneError, usageError } from '../../common/errors.js';
import type { RunReport } from '../../contract/reports.js';
import type { Context } from '../context.js';
import { codeOfMisfit, interrupted, nothingFits, renderError, unsaid } from '../errors.js';
import { toJobOptions } from '../job-options.js';
import { refuseAsRank } from '../launched-as-rank.js';
import { tellsMore } from '../tells-more.js';
import type { Verb } from '../verb.js';
import { checkWritable, writeResult } from '../whole-file.js';
import { workDeps } from '../work.js';

export default (async ({ options, command }, context) => {
  const { report: file, ...rest } = options;
  if (context.out.json && typeof file !== 'string') {
    throw usageError(
      'With run, --json needs --report FILE: stdout belongs to the job.',
      'Write: oomtune run --json --report report.json -- COMMAND…',
    );
  }
  const jobOptions = toJobOptions(rest, command);
  refuseAsRank('run', jobOptions, process.env);
  if (typeof file === 'string') checkWritable(file, 'report');
  const [{ deps, request, around }, { runJob }] = await Promise.all([
    workDeps(context, 'run', jobOptions, command, rest.notify),
    import('../../worker/index.js'),
  ]);
  const report = await around(() => runJob(request, deps));
  context.progress.close();
  if (typeof file === 'string') await writeResult(file, `${JSON.stringify(report, null, 2)}\n`);
  if (context.signal.aborted) throw interrupted();
  return codeOf(report, context);
}) satisfies Verb;

/** The job's exit code; 128 + n for signal n; ours if nothing ran. */
function codeOf(report: RunReport, context: Context): number {
  const { failure } = report;
  if (report.exit_code === 0 && report.outcome === 'succeeded') return 0;
  if (report.exit_code === null && report.signal === null && report.outcome === 'exhausted')
    return tell(codeOfMisfit(failure?.reason), nothingFits(failure));
  const how =
    report.outcome === 'timeout'
      ? 'The job ran out of time'
      : report.signal !== null
        ? `The job was ended by ${report.signal}`
        : report.exit_code !== null
          ? `The job ended with exit code ${report.exit_code}`
          : 'The job failed before it could run';
  if (report.next_start !== undefined) {
    const message = `${how}: ${failure?.class ?? 'device_oom'}. ${report.next_start}`;
    return tell('OOMTUNE_SMALLER_NEXT', message);
  }
  if (report.outcome === 'timeout')
    return tell('OOMTUNE_TIME_LIMIT', `${how}${failure?.cause ? `: ${failure.cause}` : '.'}`);
  const ours = tell('OOMTUNE_JOB_FAILED', failure ? `${how}: ${failure.class}. ${failure.cause}`.trim() : `${how}.`);
  if (report.exit_code !== null && report.exit_code !== 0) return report.exit_code;
  if (report.signal !== null) return 128 + (constants.signals[report.signal as NodeJS.Signals] ?? 0);
  return ours;

  /** Said on stderr even with --json: stdout has been the job's. */
  function tell(code: ErrorCode, message: string): number {
    const remedy = failure?.advice || 'Its output says why.';
    const evidence = unsaid(failure?.evidence, message, remedy);
    const error = new OomtuneError(code, message, evidence === null ? remedy : `${remedy}\nEvidence: ${evidence}`);
    renderError(error, { ...context.out, json: false });
    if (report.launches > 0) context.out.note(tellsMore(report.job, context));
    return error.exitCode;
  }
}
