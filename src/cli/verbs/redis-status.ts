import { tellStatus } from '../running.js';
import type { Verb } from '../verb.js';

const redisStatusVerb: Verb = async (_invocation, context) => {
  const { redisStatus } = await import('../../store/index.js');
  const status = { schema: 1 as const, ...(await redisStatus({ url: context.redisUrl })) };
  tellStatus(context.out, 'redis-status', status, 'the next verb that needs it starts it');
  return 0;
};

export default redisStatusVerb;
