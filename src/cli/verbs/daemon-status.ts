import type { Verb } from '../program.js';
import { facts } from '../table.js';

const daemonStatusVerb: Verb = async (_invocation, context) => {
  const store = await context.store();
  const { daemonStatus } = await import('../../daemon/index.js');
  const status = await daemonStatus(store);
  if (context.out.json) context.out.document({ schema: 1, ...status });
  else if (!status.running) context.out.data('not running; `oomtune daemon start` starts it');
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

export default daemonStatusVerb;
