import { tellStatus } from '../running.js';
import type { Verb } from '../verb.js';

const redisStatusVerb: Verb = async (_invocation, context) => {
  const { redisStatus } = await import('../../store/index.js');
  tellStatus(context.out, await redisStatus({ url: context.redisUrl }), 'the next verb that needs it starts it');
  return 0;
};

export default redisStatusVerb;
