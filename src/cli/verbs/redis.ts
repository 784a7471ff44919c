import { usageError } from '../../common/errors.js';
import type { ForegroundLease } from '../../contract/state.js';
import { printStatus } from '../running.js';
import type { Verb } from '../verb.js';

export const url: Verb = async (_invocation, context) => {
  const { url } = await context.store();
  if (context.out.json) context.out.document('redis-url', { schema: 1, url });
  else context.out.data(url);
  return 0;
};

export const status: Verb = async (_invocation, context) => {
  const { redisStatus } = await import('../../store/index.js');
  const status = { schema: 1 as const, ...(await redisStatus({ url: context.redisUrl })) };
  printStatus(context.out, 'redis-status', status, 'the next verb that needs it starts it');
  return 0;
};

export const stop: Verb = async (_invocation, context) => {
  if (context.redisUrl !== null) {
    throw usageError(
      'A Redis given by URL is not ours to stop.',
      'Leave out --redis and OOMTUNE_REDIS_URL to stop the embedded one.',
    );
  }
  const { stopRedis } = await import('../../store/index.js');
  for (const { foreground, process } of await users())
    context.out.note(
      `note: oomtune ${foreground.verb} of ${foreground.name} (process ${process.pid}) uses it: what its job takes cannot be recorded until it runs again.`,
    );
  const stopped = await stopRedis();
  if (context.out.json) context.out.document('redis-stop', { schema: 1, stopped });
  else context.out.note(stopped ? 'stopped' : 'it was not running');
  return 0;
};

/** What works with it in the foreground; none where it refuses to say, as it is to be stopped all the same. */
async function users(): Promise<ForegroundLease[]> {
  const { openStore, redisStatus } = await import('../../store/index.js');
  if ((await redisStatus()).version === null) return [];
  const store = await openStore();
  return store.leasing
    .foreground()
    .catch(() => [])
    .finally(() => store.close());
}
