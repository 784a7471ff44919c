import type { Verb } from '../program.js';
import { facts } from '../table.js';

const redisStatusVerb: Verb = async (_invocation, context) => {
  const { redisStatus } = await import('../../store/index.js');
  const status = await redisStatus({ url: context.redisUrl });
  if (context.out.json) context.out.document({ schema: 1, ...status });
  else if (!status.running) context.out.data('not running; the next verb that needs it starts it');
  else {
    context.out.data(
      facts(
        Object.entries(status).map(([name, value]) => [name, value === null ? null : String(value)]),
        '',
      ),
    );
  }
  return 0;
};

export default redisStatusVerb;
