import type { JobRecord } from '../../contract/job.js';
import type { Store } from '../../store/index.js';
import type { Context } from '../context.js';
import { deviceEntries } from '../device-entries.js';
import { jobFilter } from '../job-filter.js';
import { createListing } from '../job-listing.js';
import { statusEntries } from '../status-entry.js';
import { hasEnded } from '../status-view.js';
import { Screen } from '../top/screen.js';
import { NO_JOBS, renderTopDevices, renderTopJobs, type TopPicture } from '../top/view.js';
import type { Verb } from '../verb.js';

/** Ended jobs that are shown below the others. */
const ENDED = 5;

export default (async ({ options }, context) => {
  const { out } = context;
  const store = await context.store();
  const read = await pictures(store, context, options);
  if (out.json) {
    const { devices, jobs, foreground } = await read();
    out.document('top', { schema: 1, devices, jobs: await statusEntries(store, jobs), foreground });
    return 0;
  }
  if (process.stdout.isTTY && process.stdin.isTTY && process.env.TERM !== 'dumb')
    return new Screen(store, context, read).run();
  const picture = await read();
  const jobs =
    picture.jobs.length + picture.foreground.length === 0 ? NO_JOBS : renderTopJobs(picture, null, out.paint);
  out.data(`${renderTopDevices(picture, out.paint)}\n\n${jobs}`);
  return 0;
}) satisfies Verb;

type Read = () => Promise<TopPicture>;

/** The devices and jobs of now, at each call; jobs that work come first, those that ended last. */
async function pictures(store: Store, context: Context, options: Record<string, unknown>): Promise<Read> {
  const filter = jobFilter(options);
  const listing = await createListing(store, { names: [], filter, limit: ENDED, note: context.out.note });
  const ofMachine = (await context.system()) !== null; // its daemon tells nobody how long others' jobs took
  return async () => {
    const [devices, { jobs, foreground }] = await Promise.all([deviceEntries(context), listing.read()]);
    const running = ofMachine ? [] : jobs.filter(({ state }) => state === 'running');
    const known = await Promise.all(running.map((job) => store.durations.expected(job)));
    const expected = new Map(running.flatMap(({ job }, at) => (known[at] == null ? [] : [[job, known[at]] as const])));
    return { devices, jobs: jobs.sort((a, b) => rank(a) - rank(b)), foreground, expected };
  };
}

const rank = (job: JobRecord): number =>
  hasEnded(job) ? 2 : job.state === 'running' || job.state === 'searching' ? 0 : 1;
