import { systemText } from '../common/regular-file.js';
import type { LIMITS, Shell } from '../contract/shell.js';

/** As /proc/self/limits calls them. */
const NAMES: Record<string, (typeof LIMITS)[number]> = {
  'Max cpu time': 'cpu',
  'Max file size': 'fsize',
  'Max data size': 'data',
  'Max stack size': 'stack',
  'Max core file size': 'core',
  'Max resident set': 'rss',
  'Max processes': 'nproc',
  'Max open files': 'nofile',
  'Max locked memory': 'memlock',
  'Max address space': 'as',
  'Max file locks': 'locks',
  'Max pending signals': 'sigpending',
  'Max msgqueue size': 'msgqueue',
  'Max nice priority': 'nice',
  'Max realtime priority': 'rtprio',
};

/** The umask and limits of this process; of a limit that the kernel does not tell nothing is said. */
export function ownShell(): Shell {
  const limits = systemText('/proc/self/limits')
    .split('\n')
    .flatMap((line) => {
      const [, title = '', soft = '', hard = ''] =
        /^(Max [a-z ]+?) {2,}(\d+|unlimited) +(\d+|unlimited)/.exec(line) ?? [];
      const name = NAMES[title.trim()];
      return name === undefined ? [] : [{ name, soft: amount(soft), hard: amount(hard) }];
    });
  return { umask: process.umask(), limits };
}

const amount = (text: string): number | null =>
  text === 'unlimited' || Number(text) > Number.MAX_SAFE_INTEGER ? null : Number(text);
