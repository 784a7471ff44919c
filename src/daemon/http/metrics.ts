import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { FAILURE_CLASSES } from '../../contract/failure.js';
import { ENDED_STATES } from '../../contract/job.js';

/** Seconds, from a small model's search to one of many large launches, and to a night in the queue. */
const SEARCH_BUCKETS = [1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1200, 3600];
const WAIT_BUCKETS = [0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600];

const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`);

/** Our metrics, in base units. Labels take few values (states, classes, devices, owners), never names that users choose. */
export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  // Gauges with names like counters'; the same without that ending exist, too
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const gauge = <L extends string = never>(name: string, help: string, labelNames: L[] = []): Gauge<L> =>
    new Gauge({ name: `oomtune_${name}`, help, labelNames, registers: [registry] });
  const counter = <L extends string = never>(name: string, help: string, labelNames: L[] = []): Counter<L> =>
    new Counter({ name: `oomtune_${name}`, help, labelNames, registers: [registry] });
  const histogram = <L extends string = never>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: L[] = [],
  ): Histogram<L> => new Histogram({ name: `oomtune_${name}`, help, buckets, labelNames, registers: [registry] });

  const all = {
    registry,
    build: gauge('build_info', 'Versions of the parts; always 1.', ['version', 'node', 'driver']),
    redisUp: gauge('redis_up', 'Whether Redis answers: 1 or 0.'),
    hosts: gauge('hosts', 'Hosts seen within the last day, by whether their daemon is heard.', ['alive']),
    jobs: gauge('jobs', 'Jobs that have not ended, by state; on all hosts of this Redis.', ['state']),
    ownerJobs: gauge('owner_jobs', 'Jobs that have not ended, by their owner and state.', ['owner', 'state']),
    ownerUsed: gauge(
      'owner_device_seconds',
      'Device time that a user has used lately; counts half after a half-life.',
      ['owner'],
    ),
    ownerShare: gauge('owner_share', 'Its part of what all users have used lately, from 0 to 1.', ['owner']),
    ownerGpus: gauge('owner_gpus', 'GPUs on which a user has something now.', ['owner']),
    oldest: gauge('queue_oldest_seconds', 'Since when the job that waits longest has waited; 0 when none does.'),
    leases: gauge('leases', 'Reservations of devices; on all hosts of this Redis.'),
    leaseWaiters: gauge('lease_waiters', 'Jobs and commands that wait for a reservation; on all hosts of this Redis.'),
    recommendations: gauge('recommendations', 'Configurations that are recorded.'),
    refusedRecords: gauge('refused_records', 'Records in Redis that were left alone because they cannot be trusted.'),
    total: gauge('device_memory_total_bytes', 'Memory of a device of this host.', ['device', 'model']),
    used: gauge('device_memory_used_bytes', 'Memory in use on a device, by whomever.', ['device', 'model']),
    reserved: gauge('device_memory_reserved_bytes', 'Memory of a device that leases reserve.', ['device', 'model']),
    foreign: gauge('device_memory_foreign_bytes', 'Memory in use by processes that are not jobs.', ['device', 'model']),
    fault: gauge('device_fault', 'Whether the driver calls a device broken: 1 or 0.', ['device', 'model']),
    ended: counter('jobs_ended_total', 'Jobs that ended on this host, by how.', ['state']),
    failures: counter('job_failures_total', 'Jobs that failed on this host, by class of the failure.', ['class']),
    probes: counter('probes_total', 'Sizes that were tried for jobs of this host, by outcome.', ['outcome']),
    demoted: counter('recommendations_demoted_total', 'Configurations that did not hold in use.'),
    refused: counter('refused_allocations_total', 'Allocations that a budget or a driver refused to jobs.'),
    search: histogram('search_duration_seconds', 'From the beginning of a search to its answer.', SEARCH_BUCKETS, [
      'result',
    ]),
    wait: histogram('queue_wait_seconds', 'From queueing a job to its first launch here.', WAIT_BUCKETS),
  };
  // A series that starts with its first failure would hide that failure from `increase()`
  for (const state of ENDED_STATES) all.ended.inc({ state }, 0);
  for (const name of FAILURE_CLASSES) all.failures.inc({ class: name }, 0);
  for (const outcome of ['fit', ...FAILURE_CLASSES]) all.probes.inc({ outcome }, 0);
  return all;
}

export type Metrics = ReturnType<typeof createMetrics>;
