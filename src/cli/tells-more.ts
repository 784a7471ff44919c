import type { Context } from './context.js';
import { shellWords } from './words.js';

/** Where to ask what became of a job in the foreground: a node's own Redis is not known where its output may be read. */
export function tellsMore(job: string, { redisUrl }: Pick<Context, 'redisUrl'>): string {
  const { SLURMD_NODENAME: node, OOMTUNE_HOME: home } = process.env;
  if (redisUrl !== null || node === undefined) return `\`oomtune explain ${job}\` tells more.`;
  const where = home ? `${shellWords([`OOMTUNE_HOME=${home}`])} ` : '';
  return `On the node ${node} \`${where}oomtune explain ${job}\` tells more.`;
}
