import type { JobRecord } from '../contract/job.js';
import type { StoredJob } from '../store/index.js';
import { foreignEnvironment } from '../worker/command/environment.js';
import { forgetEnvironment, savedEnvironment } from './saved-environment.js';
import { withheldNote } from './withheld.js';

/** Errors of programs without a variable that they need. */
const MISSING =
  /\bKeyError\b|unbound variable|environment variable|\b(401|403)\b|unauthori[sz]ed|forbidden|authenticat|credential|api[ _-]?key|access token|not logged in|log ?in\b|gated repo/i;

/** A submitted job's environment on this host, and which variables stayed behind. */
export class LaunchEnvironment {
  /** Names of the submitter's variables that the job lacks; known after `environment()`. */
  withheld: string[] = [];

  constructor(protected readonly job: StoredJob) {}

  /** Finds out what stays behind. Throws OOMTUNE_USAGE. */
  async prepare(): Promise<void> {
    this.environment();
  }

  /** The submitter's, else (from another host) this daemon's by the allow-list and `--env`. Throws OOMTUNE_USAGE. */
  environment(): Record<string, string> {
    const { job, options, environment: where } = this.job;
    const own = savedEnvironment(job, where);
    if (own !== null) return own;
    const foreign = foreignEnvironment(options, process.env);
    this.withheld = (where?.bound ?? []).filter((name) => foreign[name] === undefined);
    return foreign;
  }

  /** Null: nothing was withheld. */
  get note(): string | null {
    return withheldNote(this.job.environment, this.withheld);
  }

  /** Adds a hint to failures that a withheld variable may have caused. */
  blame(outcome: Partial<JobRecord>): Partial<JobRecord> {
    const { failure } = outcome;
    if (!failure || !['user_error', 'network'].includes(failure.class) || this.note === null) return outcome;
    const text = `${failure.evidence ?? ''} ${failure.fields.cause ?? ''}`;
    const named = this.withheld.filter((name) => new RegExp(`\\b${name.replace(/\W/g, '\\$&')}\\b`).test(text));
    if (named.length === 0 && !MISSING.test(text)) return outcome;
    const note = withheldNote(this.job.environment, named.length > 0 ? named : this.withheld);
    const advice = [note, failure.fields.advice].filter(Boolean).join(' ');
    return {
      ...outcome,
      failure: { ...failure, fields: { ...failure.fields, withheld: this.withheld.join(' '), advice } },
    };
  }

  forget(): void {
    forgetEnvironment(this.job.job, this.job.environment);
  }
}
