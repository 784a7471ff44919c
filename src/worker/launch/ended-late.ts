import { formatSpan } from '../../common/span.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { JobOptions } from '../../contract/options.js';
import { SEARCH_SECONDS } from './launch.js';

/** So much earlier a launch may seem to have ended than its limit, in seconds. */
const EARLY_SECONDS = 0.5;

/** Which limit ended a launch that ran out of time, and what helps; the same diagnosis for one that did not, or that has told why. */
export function namingLimit(
  diagnosis: Diagnosis,
  exit: Exit,
  purpose: 'search' | 'run',
  { timeoutSeconds, timeSeconds }: Pick<JobOptions, 'timeoutSeconds' | 'timeSeconds'>,
): Diagnosis {
  if (diagnosis.class !== 'timeout' || exit.ended_by !== 'timeout' || diagnosis.evidence !== null) return diagnosis;
  if (purpose === 'search') {
    const option = timeoutSeconds === null ? 'the default of --timeout' : '--timeout';
    const cause = `${option} ended it at its limit of ${formatSpan(timeoutSeconds ?? SEARCH_SECONDS)}`;
    const advice = 'Give it more time by --timeout: a launch of a search has to start and make its steps within it.';
    return { ...diagnosis, cause: `${cause}.`, advice };
  }
  const lasted = (Date.parse(exit.ended_at) - Date.parse(exit.started_at)) / 1000;
  const ofLaunch = timeoutSeconds !== null && (timeSeconds == null || lasted >= timeoutSeconds - EARLY_SECONDS);
  const [option, limit] = ofLaunch ? ['--timeout', timeoutSeconds] : ['--time', timeSeconds ?? 0];
  const advice = `Give it more time by ${option}, or let it write checkpoints and resume.`;
  return { ...diagnosis, cause: `${option} ended it at its limit of ${formatSpan(limit)}.`, advice };
}
