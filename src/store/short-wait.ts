/** `waits for 4 devices, a whole device: cuda:0 of 80 GiB: …; cuda:1 of …; and 2 more`, as `waitReason` writes it. */
const WAIT = /^waits for (?:(\d+) devices, )?(a whole device|\S+ \S+ of a device): (.*)$/s;
const DEVICE = /^(\S+) of \S+ \S+: (.*)$/s;
const FOREIGN = /(?:([\d.]+ \S+) are|most of it is) used by (.*)$/s;
const GOES_FIRST =
  /(\S+ has a higher priority|\S+ has used less lately(?: \(\S+\))?|\S+ has waited longer for it)(?:$|, )/;
const HOLDER = /^(\S+) holds (.+)$/;

interface Blocked {
  device: string;
  why: string;
  /** The lower, the more it says to whom it may concern. */
  rank: number;
}

/**
 * A reason to wait in one line: what is waited for, and the most telling of what keeps it away: a process that is not ours,
 * which may never go; who goes first; or a job that holds a device. Any other reason as it stands.
 */
export function shortWait(reason: string): string {
  const [, many, size, rest] = WAIT.exec(reason) ?? [];
  if (size === undefined || rest === undefined) return reason;
  const devices = rest.split('; ').flatMap((entry) => blocked(entry) ?? []);
  const [first] = devices.toSorted((a, b) => a.rank - b.rank);
  if (first === undefined) return reason;
  const noun = /^cuda:/.test(first.device) ? 'GPU' : 'device';
  const part = size === 'a whole device' ? '' : size.replace(/ of a device$/, ' of ');
  const wanted = many === undefined ? `${part}a ${noun}` : `${part === '' ? '' : `${part}each of `}${many} ${noun}s`;
  return `${wanted}: ${first.device} ${first.why}`;
}

function blocked(entry: string): Blocked | null {
  const [, device, text] = DEVICE.exec(entry) ?? [];
  if (device === undefined || text === undefined || text === 'free') return null;
  const foreign = FOREIGN.exec(text);
  if (foreign !== null) {
    const several = /\(pid \d+\), |^processes /.test(foreign[2] ?? '');
    const who = several ? 'processes that are not ours' : 'a process that is not ours';
    return { device, why: `is held by ${who}${foreign[1] === undefined ? '' : `, ${foreign[1]}`}`, rank: 0 };
  }
  const before = GOES_FIRST.exec(text)?.[1];
  if (before !== undefined) return { device, why: `is kept: ${before}`, rank: 1 };
  const [first = '', ...others] = text.split(', ');
  const [, job, amount] = HOLDER.exec(first) ?? [];
  if (job === undefined) return { device, why: 'is in use', rank: 3 };
  const more = others.length > 0 ? ' and others' : amount === 'all' ? '' : `, ${amount}`;
  return { device, why: `is held by ${job}${more}`, rank: 2 };
}
