import { createLog } from '../../common/log.js';
import { interrupted } from '../errors.js';
import { renderEstimate } from '../estimate-view.js';
import { toJobOptions } from '../job-options.js';
import { readNumber, type Verb } from '../verb.js';

/** Without Redis, leases and records: it uses no device, and what it finds is not verified. */
export default (async ({ options, command }, context) => {
  const jobOptions = toJobOptions(options, command);
  const [{ cardsOf, estimate, WITHOUT_RECORDS }, { newJobId }, runtime] = await Promise.all([
    import('../../worker/index.js'),
    import('../../store/job-id.js'),
    context.runtime(),
  ]);
  const cards = cardsOf((options.card as string[] | undefined) ?? null);
  const sizes = ((options.microBatch as string[] | undefined) ?? []).map(
    (text) =>
      readNumber('--micro-batch', text, { least: 1, most: 1_000_000, remedy: 'Give a number of samples.' }) as number,
  );
  const report = await estimate(
    {
      jobId: newJobId(),
      command,
      options: jobOptions,
      purpose: 'find-batch',
      journal: [],
      launches: [],
      foreground: false,
      environment: process.env,
    },
    {
      runtime,
      records: async () => WITHOUT_RECORDS,
      signal: context.signal,
      progress: (event) => {
        if (event.type === 'note' || event.type === 'interpreter') context.progress.show(event);
      },
      persist: async () => {},
      log: createLog('estimate'),
    },
    { cards, sizes },
  ).catch((error) => {
    if (context.signal.aborted) throw interrupted();
    throw error;
  });
  context.progress.close();
  if (context.out.json) context.out.document('estimate', report);
  else context.out.data(renderEstimate(report, context.out.paint));
  return report.cards.some(({ micro_batch, own_fits }) => micro_batch > 0 || own_fits === true) ? 0 : 3;
}) satisfies Verb;
