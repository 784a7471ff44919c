import type { Store, StoredJob } from '../store/index.js';

/** How long a job is expected to run, by what others of its name took (s); null: not known. */
export const expectedSeconds = (store: Store, { options, name }: StoredJob): Promise<number | null> =>
  store.durations.longest(options.name ?? name);

/** Notes how long a job took that has succeeded: the next of its name is expected to take as long. */
export async function noteDuration(store: Store, { name, options, started_at }: StoredJob): Promise<void> {
  if (started_at === null) return;
  await store.durations.add(options.name ?? name, (Date.now() - Date.parse(started_at)) / 1000);
}
