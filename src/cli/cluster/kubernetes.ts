import { usageError } from '../../common/errors.js';
import type { Allotment } from './allotment.js';

/**
 * How a cluster is told of a part of a GPU's memory. `gpu`: whole GPUs, and oomtune alone keeps the budget. `hami`: HAMi's
 * resource. `kai`: the KAI scheduler's annotation. `runtime`: what NVIDIA's container toolkit reads (1.20.1, driver 615).
 */
export const LIMITS = ['gpu', 'hami', 'kai', 'runtime'] as const;
export type Limit = (typeof LIMITS)[number];

interface Variable {
  name: string;
  value?: string;
  valueFrom?: { secretKeyRef: { name: string; key: string } };
}

/** The parts of a pod template that say what a job needs. */
interface PodNeeds {
  metadata: { labels?: Record<string, string>; annotations?: Record<string, string> };
  schedulerName?: string;
  env: Variable[];
  resources: { limits: Record<string, string | number> };
}

/** Throws OOMTUNE_USAGE where the form needs a size and none is known. */
export function podNeeds(allotment: Allotment, limit: Limit): PodNeeds {
  const { gpus, mib, hostMib } = allotment;
  const env: Variable[] = Object.entries(allotment.env).map(([name, value]) => ({ name, value: literal(value) }));
  const needs: PodNeeds = { metadata: {}, env, resources: { limits: {} } };
  if (hostMib !== null) needs.resources.limits.memory = `${hostMib}Mi`;
  if (gpus === 0) return needs;
  if (limit !== 'gpu' && mib === null) {
    throw usageError(
      'How much GPU memory the job needs is not known.',
      'Give --budget SIZE, or record a configuration first: oomtune find-batch --budget SIZE -- COMMAND',
    );
  }
  if (limit === 'kai') {
    needs.metadata.annotations = {
      'gpu-memory': String(mib),
      ...(gpus > 1 ? { 'gpu-fraction-num-devices': String(gpus) } : {}),
    };
    needs.schedulerName = 'kai-scheduler';
    return needs;
  }
  needs.resources.limits['nvidia.com/gpu'] = gpus;
  if (limit === 'hami') needs.resources.limits['nvidia.com/gpumem'] = mib as number;
  if (limit === 'runtime')
    needs.env.push(
      { name: 'NVIDIA_GPU_MEMORY_REQUEST', value: String(mib) },
      { name: 'NVIDIA_GPU_MEMORY_LIMIT', value: String(mib) },
    );
  return needs;
}

/** A part of a pod template, to be merged into one. */
export function podFragment(allotment: Allotment, limit: Limit): object {
  const { metadata, schedulerName, env, resources } = podNeeds(allotment, limit);
  const container = { name: label(allotment.name), env, resources };
  return {
    ...(Object.keys(metadata).length > 0 ? { metadata } : {}),
    spec: { ...(schedulerName === undefined ? {} : { schedulerName }), containers: [container] },
  };
}

export interface Manifest {
  allotment: Allotment;
  limit: Limit;
  image: string;
  /** The words after `oomtune run`, without the command. */
  words: string[];
  command: string[];
  /** Of `--env NAME=VALUE`. */
  variables: Record<string, string>;
  workingDir: string | null;
  namespace: string | null;
  /** A LocalQueue of Kueue's, or with limit `kai` a queue of that scheduler's. */
  queue: string | null;
  /** Where the URL of Redis is; null: each pod has a Redis of its own. */
  redis: { name: string; key: string } | null;
  retries: number;
  timeSeconds: number | null;
}

const KUEUE = 'kueue.x-k8s.io/queue-name';
const KAI_QUEUE = 'kai.scheduler/queue';

/** Ends after which a new pod may do better: something that was missing, a smaller size, a kill by the node. */
const WORTH_ANOTHER = [5, 75, 137, 143];

/** A Job of batch/v1. */
export function jobManifest(given: Manifest): object {
  const { allotment, limit, queue, redis, timeSeconds } = given;
  const needs = podNeeds(allotment, limit);
  const kai = limit === 'kai' && allotment.gpus > 0;
  const queueLabel = queue === null ? {} : { [kai ? KAI_QUEUE : KUEUE]: queue };
  const own = { 'app.kubernetes.io/managed-by': 'oomtune' };
  const url = redis === null ? [] : [{ name: 'OOMTUNE_REDIS_URL', valueFrom: { secretKeyRef: redis } }];
  const variables = Object.entries(given.variables).map(([name, value]) => ({ name, value: literal(value) }));
  const container = {
    name: 'train',
    image: given.image,
    command: ['oomtune', 'run', '--requeue', ...given.words, '--', ...given.command].map(literal),
    ...(given.workingDir === null ? {} : { workingDir: given.workingDir }),
    env: [...url, ...needs.env, ...variables],
    resources: needs.resources,
    volumeMounts: [{ name: 'shm', mountPath: '/dev/shm' }],
  };
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: {
      name: label(allotment.name),
      ...(given.namespace === null ? {} : { namespace: given.namespace }),
      labels: { ...own, ...queueLabel },
    },
    spec: {
      ...(queue !== null && !kai ? { suspend: true } : {}),
      backoffLimit: given.retries,
      // the job's own time is kept by oomtune; this is for what waits around it
      ...(timeSeconds === null ? {} : { activeDeadlineSeconds: Math.ceil(timeSeconds * (given.retries + 1)) + 600 }),
      podFailurePolicy: {
        rules: [
          { action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] },
          { action: 'Count', onExitCodes: { containerName: 'train', operator: 'In', values: WORTH_ANOTHER } },
          { action: 'FailJob', onExitCodes: { containerName: 'train', operator: 'NotIn', values: WORTH_ANOTHER } },
        ],
      },
      template: {
        // Kueue manages the Job, and would take a pod with its label for one to manage, too
        metadata: { labels: kai ? { ...own, ...queueLabel } : own, ...needs.metadata },
        spec: {
          restartPolicy: 'Never',
          ...(needs.schedulerName === undefined ? {} : { schedulerName: needs.schedulerName }),
          containers: [container],
          volumes: [{ name: 'shm', emptyDir: { medium: 'Memory', sizeLimit: '8Gi' } }],
        },
      },
    },
  };
}

/** Kubernetes replaces `$(NAME)` in words and values; a doubled dollar stands for one. */
const literal = (text: string): string => text.replaceAll('$', '$$$$');

/** A name that Kubernetes takes for an object (RFC 1123). */
export function label(name: string): string {
  const plain = name
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 52)
    .replace(/^-+|-+$/g, '');
  return plain === '' ? 'oomtune' : plain;
}
