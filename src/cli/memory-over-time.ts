import { formatBytes } from '../common/size.js';
import type { JobRecord } from '../contract/job.js';
import type { MemorySample } from '../contract/verbs.js';
import type { MemoryTrace } from '../store/index.js';
import type { Paint } from './output.js';
import { seconds } from './words.js';

const HEIGHTS = '▁▂▃▄▅▆▇█';
const WIDTH = 32;
/** Only the last launches are shown. */
const LAUNCHES_SHOWN = 8;

/** Without a look for this long nobody looked: no daemon ran. Looks are 250 ms apart, on a busy machine more. */
const GAP_MS = 5000;

/** Memory over time, a line for each launch in which something was seen, scaled to the budget or to the highest peak. */
export function memoryOverTime(
  job: Pick<JobRecord, 'launches' | 'started_at' | 'ended_at'>,
  trace: MemoryTrace,
  paint: Paint,
): string[] {
  const launches = byLaunch(trace.samples).filter((samples) => samples.some(({ bytes }) => bytes > 0));
  if (launches.length === 0) return [];
  const top = Math.max(trace.budget_bytes ?? 0, ...trace.samples.map(({ bytes }) => bytes)) || 1;
  const shown = launches.slice(-LAUNCHES_SHOWN);
  const left = launches.length - shown.length;
  const scale = trace.budget_bytes === null ? '' : `, up to the budget of ${formatBytes(trace.budget_bytes)}`;
  return [
    `Memory over time${scale}:`,
    ...(left > 0 ? [`  (${left} earlier ${left === 1 ? 'launch' : 'launches'} left out)`] : []),
    ...shown.map((samples) => {
      const [first] = samples as [MemorySample];
      const purpose = job.launches.find(({ launch }) => launch === first.launch)?.purpose;
      const peak = Math.max(...samples.map(({ bytes }) => bytes));
      const name = `launch ${first.launch}${purpose === 'run' ? ', the run' : ''}`;
      const line = spark(samples, top, Math.min(WIDTH, Math.max(1, samples.length)));
      return `  ${name.padEnd(18)} ${paint('cyan', line)}${' '.repeat(WIDTH - [...line].length)} peak ${formatBytes(peak)}, ${seenWords(job, samples, trace)}`;
    }),
  ];
}

/** `seen for 2.8 s (it ran for 37 s)`: the whole only where a part of it was not seen, and where it is known. */
function seenWords(
  { started_at, ended_at }: Pick<JobRecord, 'started_at' | 'ended_at'>,
  samples: readonly MemorySample[],
  { every, samples: all }: MemoryTrace,
): string {
  const [first, last] = [samples[0] as MemorySample, samples.at(-1) as MemorySample];
  const gap = GAP_MS * every;
  const seen = samples.slice(1).reduce((sum, { at }, before) => {
    const passed = at - (samples[before] as MemorySample).at;
    return passed < gap ? sum + passed : sum;
  }, 0);
  const from = first === all[0] && started_at !== null ? Date.parse(started_at) : first.at;
  const to = last === all.at(-1) && ended_at !== null ? Date.parse(ended_at) : last.at;
  const how = samples.length === 1 ? 'seen once' : `seen for ${seconds(seen / 1000)}`;
  return to - from - seen < gap ? how : `${how} (it ran for ${seconds((to - from) / 1000)})`;
}

/** Samples by launch; a launch that was adopted stays one. */
function byLaunch(samples: readonly MemorySample[]): MemorySample[][] {
  const launches: MemorySample[][] = [];
  for (const sample of samples) {
    const last = launches.at(-1);
    if (last?.[0]?.launch === sample.launch) last.push(sample);
    else launches.push([sample]);
  }
  return launches;
}

/** The maximum of each interval; blank without samples. */
function spark(samples: MemorySample[], top: number, width: number): string {
  const [first, last] = [samples[0] as MemorySample, samples.at(-1) as MemorySample];
  const highest = new Array<number | null>(width).fill(null);
  for (const { at, bytes } of samples) {
    const cell = Math.min(width - 1, Math.floor(((at - first.at) / Math.max(1, last.at - first.at)) * width));
    highest[cell] = Math.max(highest[cell] ?? 0, bytes);
  }
  return highest.map((bytes) => (bytes === null ? ' ' : HEIGHTS[Math.min(7, Math.floor((bytes / top) * 8))])).join('');
}
