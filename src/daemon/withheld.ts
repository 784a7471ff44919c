import type { SubmittedEnvironment } from '../contract/job.js';

const SHOWN = 8;

/** Which variables of its submitter a job went without, and the remedy; names only. Null: none. Imports nothing, for `explain`. */
export function withheldNote(
  environment: SubmittedEnvironment | null | undefined,
  names = environment?.withheld ?? [],
): string | null {
  if (!environment || names.length === 0) return null;
  const more = names.length > SHOWN ? ` and ${names.length - SHOWN} more` : '';
  const list = `${names.slice(0, SHOWN).join(', ')}${more}`;
  return environment.file === null
    ? `It was retried without a shell's environment, so ${list} stayed behind; \`oomtune retry\` gives it the shell's.`
    : `${list} stayed on ${environment.host}, where it was submitted; there, --env NAME takes it from the daemon's environment and --env-file from a file.`;
}
