import { usageError } from '../errors.js';
import { namedJobs } from '../jobs.js';
import { showLogs } from '../logs.js';
import type { Verb } from '../verb.js';

const logsVerb: Verb = async ({ args, options }, context) => {
  const { out, signal } = context;
  const lines = readNumber('--lines', options.lines, 0);
  const launch = readNumber('--launch', options.launch, 1);
  const store = await context.store();
  const jobs = await namedJobs(store, args, out);
  const follow = Boolean(options.follow);
  if (out.json) {
    if (follow) throw usageError('--follow goes on; --json writes one document.', 'Leave one of the two out.');
    const { readLog } = await import('../logs.js');
    const logs = await Promise.all(
      jobs.map(async (job) => ({ job: job.job, ...(await readLog(store, job, { launch, lines })) })),
    );
    out.document('logs', { schema: 1, logs });
    return 0;
  }
  await showLogs(store, jobs, {
    follow,
    lines,
    launch,
    signal,
    write: (text) => process.stdout.write(text),
    terminal: Boolean(process.stdout.isTTY),
    note: out.note,
  });
  return 0;
};

export default logsVerb;

function readNumber(flag: string, value: unknown, least: number): number | null {
  if (value === undefined) return null;
  const number = Number(value);
  if (/^\d+$/.test(String(value)) && number >= least) return number;
  throw usageError(
    `Expected ${flag} to be a whole number of at least ${least}, got "${value}".`,
    'See `oomtune logs --help`.',
  );
}
