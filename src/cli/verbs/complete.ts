import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../common/home.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { Verb } from '../verb.js';

/** Completions for the shell, one a line: `word<TAB>description`. Ignores all errors. */
export default (async ({ args }, context) => {
  try {
    for (const [word, about] of await words(args[0] ?? 'jobs')) context.out.data(`${word}\t${about}`);
  } catch {
    // a completing shell must not show errors
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
      const about = (one: Recommendation): string => `micro-batch ${one.micro_batch}`;
      const names = new Map(all.toReversed().map((one) => [one.name, about(one)]));
      return [...names, ...all.map((one): [string, string] => [one.key, about(one)])];
    }
    const jobs = await store.jobs.list({ ended: 30 });
    const names = new Map(jobs.map((job) => [job.name, `${job.job} ${job.state}`])); // the latest of a name stays
    return [
      ...jobs.map((job): [string, string] => [job.job, `${job.name} ${job.state}`]),
      ...names,
      ['@', 'the latest'],
    ];
  }
}) satisfies Verb;
