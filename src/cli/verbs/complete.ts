import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../common/home.js';
import type { Verb } from '../verb.js';

/** Words for the shell to complete with, one a line: `word<TAB>what it is`. Silent about whatever goes wrong. */
const completeVerb: Verb = async ({ args }, context) => {
  try {
    for (const [word, about] of await words(args[0] ?? 'jobs')) context.out.data(`${word}\t${about}`);
  } catch {
    // a shell that waits for completions must not be shown errors
  }
  return 0;

  async function words(what: string): Promise<[string, string][]> {
    if (what === 'presets') {
      const files = readdirSync(join(PACKAGE_ROOT, 'config', 'presets')).filter((file) => file.endsWith('.yaml'));
      return [...files.map((file) => [file.slice(0, -5), 'preset']), ['auto', ''], ['none', '']] as [string, string][];
    }
    const store = await context.store();
    if (what === 'names') {
      const all = await store.recommendations.list();
      return all.map((one) => [one.key, `micro-batch ${one.micro_batch}`]);
    }
    const jobs = await store.jobs.list({ ended: 30 });
    return [...jobs.map((job) => [job.job, `${job.name} ${job.state}`] as [string, string]), ['@', 'the latest']];
  }
};

export default completeVerb;
