import type { Verb } from '../verb.js';

const redisUrlVerb: Verb = async (_invocation, context) => {
  const { url } = await context.store();
  if (context.out.json) context.out.document('redis-url', { schema: 1, url });
  else context.out.data(url);
  return 0;
};

export default redisUrlVerb;
