import { usageError } from '../../common/errors.js';
import { parseSize } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import type { JobOptions } from '../../contract/options.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { stemOfCommand } from '../../worker/command/index.js';
import { type Allotment, allotmentOf, hostMibOf, sizedBy } from '../cluster/allotment.js';
import { yaml } from '../cluster/formats.js';
import { jobManifest, type Limit } from '../cluster/kubernetes.js';
import { recordedFor } from '../cluster/recorded.js';
import { runWords } from '../cluster/run-words.js';
import { toJobOptions } from '../job-options.js';
import { namedJob } from '../jobs.js';
import type { Verb } from '../verb.js';
import { configWords } from '../words.js';

const MIB = 1024 ** 2;

export default (async ({ args, options: given, command: typed }, context) => {
  const { out } = context;
  const { image, limit = 'gpu', queue, namespace, redisSecret = 'oomtune/redis-url', ...rest } = given;
  if (args.length > 0 && typed.length > 0)
    throw usageError('manifest takes a job or a command, not both.', 'Leave one of the two out.');
  if (args.length === 0 && typed.length === 0)
    throw usageError(
      'There is nothing to write a manifest for.',
      'Name a job, or write a command: oomtune manifest --image IMAGE -- python train.py',
    );
  if (typeof image !== 'string' || image.trim() === '')
    throw usageError(
      'The manifest needs the image to run.',
      'Give --image NAME: one that has oomtune and the command in it.',
    );
  const variables = valuesOf(rest.env);
  const queueName = queueOf(queue);
  const redis = secretOf(String(redisSecret));
  const store = await context.store();
  const job = args[0] === undefined ? null : await namedJob(store, args[0], out);
  const command = job?.command ?? typed;
  const asked: JobOptions = job?.options ?? toJobOptions({ ...rest, env: [] }, command);
  const found =
    (job?.key == null ? null : await verified(store.recommendations.get(job.key))) ??
    (await recordedFor(store, command, job === null ? asked : { ...asked, name: job.options.name ?? job.name }));
  out.note(
    found === null
      ? 'note: nothing is recorded for it: the job searches first.'
      : `note: sized by ${found.key}: ${configWords(found)}.`,
  );
  const options = found === null ? asked : sizedBy(asked, found);
  const manifest = jobManifest({
    allotment:
      found === null
        ? unsized(options, job?.name ?? command)
        : { ...allotmentOf(found), name: options.name ?? found.name },
    limit: limit as Limit,
    image,
    words: runWords(options),
    command,
    variables,
    workingDir: typeof rest.cwd === 'string' ? rest.cwd : null,
    namespace: typeof namespace === 'string' ? namespace : null,
    queue: queueName,
    redis,
    retries: options.retries,
    timeSeconds: options.timeSeconds ?? null,
  });
  if (out.json)
    out.document('manifest', { schema: 1, key: found?.key ?? null, manifest: manifest as Record<string, unknown> });
  else out.exact(yaml(manifest));
  return 0;
}) satisfies Verb;

const verified = async (read: Promise<Recommendation | null>): Promise<Recommendation | null> => {
  const found = await read;
  return found?.status === 'verified' ? found : null;
};

/** Where nothing is recorded: by what was asked for alone. */
function unsized({ name, device, gpus, budget, cwd }: JobOptions, called: string | string[]): Allotment {
  const onHost = isHost(device);
  // a percentage is of a device that is not here
  const mib = budget === null || budget.trim().endsWith('%') ? null : Math.ceil(parseSize(budget) / MIB);
  return {
    name: name ?? (typeof called === 'string' ? called : stemOfCommand(called, cwd)),
    gpus: onHost ? 0 : gpus,
    mib,
    hostMib: onHost && mib !== null ? hostMibOf(mib) : null,
    env: {},
  };
}

/** `--env NAME=VALUE`: the cluster has no environment to take a value from. */
function valuesOf(entries: unknown): Record<string, string> {
  const values: Record<string, string> = {};
  for (const entry of Array.isArray(entries) ? entries.map(String) : []) {
    const [, name, value] = /^([A-Za-z_][A-Za-z0-9_]*)=([\s\S]*)$/.exec(entry) ?? [];
    if (name === undefined || value === undefined) {
      throw usageError(
        `Expected --env to be NAME=VALUE, got ${JSON.stringify(entry)}.`,
        'A pod has no shell to take a value from; a secret belongs into a Secret, by hand.',
      );
    }
    values[name] = value;
  }
  return values;
}

function queueOf(queue: unknown): string | null {
  if (queue === undefined) return null;
  const name = String(queue);
  if (/^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(name)) return name;
  throw usageError(
    `Expected --queue to be the name of a queue, got ${JSON.stringify(name)}.`,
    '`kubectl get localqueues` lists those of Kueue.',
  );
}

/** `NAME/KEY` of a Secret; `none`: there is none. */
function secretOf(text: string): { name: string; key: string } | null {
  if (text === 'none') return null;
  const [, name, key = 'redis-url'] = /^([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?:\/([A-Za-z0-9._-]+))?$/.exec(text) ?? [];
  if (name !== undefined) return { name, key };
  throw usageError(
    `Expected --redis-secret to be NAME/KEY of a Secret, or none, got ${JSON.stringify(text)}.`,
    'Make one: kubectl create secret generic oomtune --from-literal=redis-url=rediss://…',
  );
}
