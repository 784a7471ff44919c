import type { Verb } from '../verb.js';
import { plural } from '../words.js';

const daemonForgetVerb: Verb = async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const { forgetHost } = await import('../../daemon/index.js');
  const { host, queued, ended, leases } = await forgetHost(store, args[0] ?? '');
  if (out.json) out.document('daemon-forget', { schema: 1, host, queued, ended, leases });
  else {
    out.note(`${host} is forgotten; ${plural(leases.length, 'lease')} freed`);
    for (const job of queued) out.note(`${job}  queued anew`);
    for (const job of ended) out.note(`${job}  ended: no retry was left, or it was to be cancelled`);
  }
  return 0;
};

export default daemonForgetVerb;
