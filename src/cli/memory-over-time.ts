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

/** Memory over time, a line for each launch, scaled to the budget or to the highest peak. */
export function memoryOverTime(job: Pick<JobRecord, 'launches'>, trace: MemoryTrace, paint: Paint): string[] {
  const launches = byLaunch(trace.samples);
  if (launches.length === 0) return [];
  const top = Math.max(trace.budget_bytes ?? 0, ...trace.samples.map(({ bytes }) => bytes)) || 1;
  const shown = launches.slice(-LAUNCHES_SHOWN);
  const left = launches.length - shown.length;
  const scale = trace.budget_bytes === null ? '' : `, up to the budget of ${formatBytes(trace.budget_bytes)}`;
  return [
    `Memory over time${scale}:`,
    ...(left > 0 ? [`  (${left} earlier ${left === 1 ? 'launch' : 'launches'} left out)`] : []),
    ...shown.map((samples) => {
      const [first, last] = [samples[0] as MemorySample, samples.at(-1) as MemorySample];
      const purpose = job.launches.find(({ launch }) => launch === first.launch)?.purpose;
      const peak = Math.max(...samples.map(({ bytes }) => bytes));
      const name = `launch ${first.launch}${purpose === 'run' ? ', the run' : ''}`;
      const line = spark(samples, top, Math.min(WIDTH, Math.max(1, samples.length)));
      return `  ${name.padEnd(18)} ${paint('cyan', line)}${' '.repeat(WIDTH - [...line].length)} peak ${formatBytes(peak)}, seen for ${seconds((last.at - first.at) / 1000)}`;
    }),
  ];
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
