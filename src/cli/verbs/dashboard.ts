import type { Verb } from '../verb.js';

export default (async (_invocation, { out }) => {
  const { dashboardAddress } = await import('../../daemon/index.js');
  const { url, address } = dashboardAddress();
  if (out.json) out.document('dashboard', { schema: 1, url, address });
  else out.data(address);
  return 0;
}) satisfies Verb;
