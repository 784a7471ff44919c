import { usageError } from '../errors.js';
import type { Verb } from '../verb.js';

const redisStopVerb: Verb = async (_invocation, context) => {
  if (context.redisUrl !== null) {
    throw usageError(
      'A Redis given by URL is not ours to stop.',
      'Leave out --redis and OOMTUNE_REDIS_URL to stop the embedded one.',
    );
  }
  const { stopRedis } = await import('../../store/index.js');
  const stopped = await stopRedis();
  if (context.out.json) context.out.document('redis-stop', { schema: 1, stopped });
  else context.out.note(stopped ? 'stopped' : 'it was not running');
  return 0;
};

export default redisStopVerb;
