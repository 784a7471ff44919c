/** Every error that a user can meet: its code, its exit code and its remedy. docs/reference/errors.md lists the same. */
export const ERROR_CODES = {
  OOMTUNE_USAGE: { exit: 2, about: 'An option or argument is wrong.' },
  OOMTUNE_BAD_SIZE: { exit: 2, about: 'A memory size cannot be read.' },
  OOMTUNE_BAD_PLACEHOLDER: { exit: 2, about: 'The command holds a placeholder that does not exist.' },
  OOMTUNE_NO_KNOB: { exit: 2, about: 'Nothing in the command takes the micro-batch, or makes one step of several.' },
  OOMTUNE_EXHAUSTED: { exit: 3, about: 'Nothing fits, even the smallest batch with every allowed knob.' },
  OOMTUNE_EVALUATION_MISFIT: { exit: 3, about: 'The training fits, but not the evaluation or the saving of the job.' },
  OOMTUNE_NOT_ESTIMATED: { exit: 4, about: 'What the script needs cannot be worked out without a GPU.' },
  OOMTUNE_JOB_FAILED: { exit: 4, about: 'The job failed for a reason that is not memory.' },
  OOMTUNE_TIME_LIMIT: { exit: 4, about: 'The job reached its time limit.' },
  OOMTUNE_SMALLER_NEXT: { exit: 75, about: 'The job ran out of device memory; its next start takes a smaller size.' },
  OOMTUNE_CLUSTER_MISSING: { exit: 5, about: "The cluster's own programs are not here." },
  OOMTUNE_CLUSTER_REFUSED: { exit: 5, about: 'The cluster refused the job, or does not answer.' },
  OOMTUNE_REDIS_UNREACHABLE: { exit: 5, about: 'Redis cannot be reached.' },
  OOMTUNE_REDIS_MISSING: { exit: 5, about: 'The redis-server executable is not installed.' },
  OOMTUNE_REDIS_UNSAFE: { exit: 5, about: 'The Redis in use would let strangers run commands, or may lose data.' },
  OOMTUNE_REDIS_REFUSED: { exit: 5, about: 'Redis refused a command.' },
  OOMTUNE_RECORD_UNREADABLE: { exit: 5, about: 'The record of a job cannot be read.' },
  OOMTUNE_HOST_TAKEN: { exit: 5, about: 'Jobs of this host name are in another home folder.' },
  OOMTUNE_HOST_ALIVE: { exit: 5, about: 'A host that is to be forgotten still lives.' },
  OOMTUNE_HOME_UNUSABLE: { exit: 5, about: "The folder of oomtune's state cannot be used." },
  OOMTUNE_OUTPUT_FAILED: { exit: 5, about: 'The output cannot be written.' },
  OOMTUNE_COMMAND_MISSING: { exit: 5, about: 'The command cannot be found or is not executable.' },
  OOMTUNE_COMMAND_SILENT: { exit: 5, about: 'The interpreter of the command does not answer.' },
  OOMTUNE_FILES_SILENT: { exit: 5, about: 'A file system does not answer.' },
  OOMTUNE_DEVICE_MISSING: { exit: 5, about: 'The device asked for is not on this machine.' },
  OOMTUNE_TORCH_MISSING: { exit: 5, about: 'The interpreter has no torch.' },
  OOMTUNE_NODE_MISSING: { exit: 5, about: 'Node is not there, or too old.' },
  OOMTUNE_NATIVE_MISSING: { exit: 5, about: 'The native runtime is not built.' },
  OOMTUNE_LIMIT: { exit: 5, about: 'The user may not have more.' },
  OOMTUNE_DAEMON_RUNNING: { exit: 5, about: 'A daemon already runs on this host.' },
  OOMTUNE_DAEMON_DOWN: { exit: 5, about: 'No daemon runs on this host.' },
  OOMTUNE_STILL_RUNNING: { exit: 5, about: 'Something that was to be ended still runs.' },
  OOMTUNE_NOT_PERMITTED: { exit: 5, about: "That is for the job's owner, or for administrators." },
  OOMTUNE_LEASE_LOST: { exit: 5, about: 'The lease on the device was lost.' },
  OOMTUNE_HTTP_REFUSED: { exit: 5, about: 'The dashboard refused a request.' },
  OOMTUNE_HTTP_NOT_FOUND: { exit: 6, about: 'The dashboard has no page of that address.' },
  OOMTUNE_NO_SUCH_JOB: { exit: 6, about: 'There is no such job.' },
  OOMTUNE_NO_SUCH_CONFIG: { exit: 6, about: 'There is no recorded configuration of that name.' },
  OOMTUNE_INTERRUPTED: { exit: 130, about: 'The command was interrupted.' },
  OOMTUNE_INTERNAL: { exit: 70, about: 'A fault in oomtune itself.' },
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

/** An error that a user can meet: one sentence in `message`, what to do next in `remedy`. */
export class OomtuneError extends Error {
  constructor(
    readonly code: ErrorCode,
    message: string,
    readonly remedy: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'OomtuneError';
  }

  get exitCode(): number {
    return ERROR_CODES[this.code].exit;
  }

  /** The document that `--json` prints. */
  toJSON(): { schema: 1; error: { code: ErrorCode; message: string; remedy: string } } {
    return { schema: 1, error: { code: this.code, message: this.message, remedy: this.remedy } };
  }
}

export function usageError(message: string, remedy: string, options?: { cause?: unknown }): OomtuneError {
  return new OomtuneError('OOMTUNE_USAGE', message, remedy, options);
}
