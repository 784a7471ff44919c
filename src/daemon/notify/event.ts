import { formatSpan } from '../../common/span.js';
import { plain } from '../../common/terminal.js';
import type { JobRecord } from '../../contract/job.js';
import type { Notification } from '../../contract/notification.js';
import { type Config, rungName, shown } from '../../contract/rung.js';

/** What a notification is made from. */
export type Told = Pick<
  JobRecord,
  | 'job'
  | 'name'
  | 'owner'
  | 'state'
  | 'reason'
  | 'host'
  | 'devices'
  | 'config'
  | 'failure'
  | 'exit_code'
  | 'submitted_at'
  | 'started_at'
  | 'ended_at'
>;

/** An environment variable holds 128 KiB at most, and so the event. */
const MOST_EVIDENCE = 2000;

export function endedEvent(job: Told): Notification {
  const since = passed(job.started_at ?? job.submitted_at, job.ended_at);
  const where = job.host === null ? '' : ` on ${[job.host, job.devices.join(', ')].filter(Boolean).join(' ')}`;
  const why = job.failure === null ? job.reason : [job.failure.class, job.failure.evidence].filter(Boolean).join(': ');
  const how: Partial<Record<JobRecord['state'], string>> = {
    succeeded: 'succeeded',
    cancelled: 'was cancelled',
    exhausted: 'fits with no batch',
    timeout: 'ran out of time',
  };
  const verb = how[job.state] ?? 'failed';
  const detail = job.state === 'succeeded' || !why ? '' : `: ${why}`;
  return event('ended', job, `${verb} after ${since}${where}${detail}`);
}

export function waitingEvent(job: Told): Notification {
  return event(
    'waiting',
    job,
    `has waited for ${passed(job.submitted_at, null)}${job.reason ? `: ${job.reason}` : ''}`,
  );
}

export function steppedDownEvent(job: Told, before: Config, now: Config): Notification {
  return event('stepped_down', job, `ran out of memory at ${words(before)}, and was started again at ${words(now)}`);
}

/** Whether a run that follows another one is a smaller one: a step down. */
export function isSmaller(now: Config, before: Config): boolean {
  return now.micro_batch < before.micro_batch || rungName(now) !== rungName(before);
}

function event(kind: Notification['event'], raw: Told, said: string): Notification {
  const { launches: _, ...job } = raw as Told & { launches?: unknown };
  const { name, owner, state, reason, host, devices, config, failure, exit_code } = job;
  const { submitted_at, started_at, ended_at } = job;
  return plain({
    schema: 1 as const,
    event: kind,
    text: `${name} (${job.job}) ${said}`.replace(/\s+/g, ' ').slice(0, MOST_EVIDENCE),
    job: job.job,
    ...{ name, owner, state, reason: reason?.slice(0, MOST_EVIDENCE) ?? null, host, devices },
    config: config && shown(config),
    failure: failure && { class: failure.class, evidence: failure.evidence?.slice(0, MOST_EVIDENCE) ?? null },
    ...{ exit_code, submitted_at, started_at, ended_at },
  });
}

function words(config: Config): string {
  const accumulation = config.accumulation > 1 ? `, accumulation ${config.accumulation}` : '';
  return `micro-batch ${config.micro_batch}${accumulation} (${rungName(config)})`;
}

function passed(from: string, to: string | null): string {
  const ms = (to === null ? Date.now() : Date.parse(to)) - Date.parse(from);
  return formatSpan(Math.max(0, Math.round(ms / 1000)));
}
