import { OomtuneError } from '../../common/errors.js';

/** The error for a command that holds `{name}`, of which nothing is known. */
export function nothingRecorded(name: string, command: readonly string[]): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_BAD_PLACEHOLDER',
    `The command holds {${name}}, which is not a placeholder, and no largest value is recorded for it on this device and budget.`,
    `Find it: oomtune find-batch --knob ${name}={${name}} -- ${command.join(' ')}\nUse {micro_batch} and the like for the batch; or double the braces, {{${name}}}, to pass it on as it stands.`,
  );
}
