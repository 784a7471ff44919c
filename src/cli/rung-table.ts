import { formatBytes } from '../common/size.js';
import type { ProbeRecord } from '../contract/measurement.js';
import { rungName } from '../contract/rung.js';
import type { Paint } from './output.js';
import { table } from './table.js';

interface Row {
  rung: string;
  /** The largest size that ran; null: none did. */
  largest: ProbeRecord | null;
  /** The smallest that ran out of memory; null: none did. */
  tooLarge: number | null;
  /** The best of its sizes, in samples a second; null: unknown. */
  speed: number | null;
}

/** What each rung of a search came to, a line each, in the order in which they were tried; nothing where there was one. */
export function rungTable(probes: readonly ProbeRecord[], paint: Paint): string[] {
  const rows = rowsOf(probes.filter(({ knob }) => knob === undefined));
  if (rows.length < 2) return [];
  const text = table(
    rows,
    [
      { title: 'RUNG', value: ({ rung }) => rung },
      { title: 'LARGEST', value: ({ largest }) => orDash(largest?.micro_batch), align: 'right' },
      { title: 'TOO LARGE', value: ({ tooLarge }) => orDash(tooLarge), align: 'right' },
      {
        title: 'PEAK',
        value: ({ largest }) => (largest?.peak_bytes ? formatBytes(largest.peak_bytes) : '-'),
        align: 'right',
      },
      { title: 'SAMPLES/S', value: ({ speed }) => orDash(speed?.toPrecision(3)), align: 'right' },
    ],
    paint,
  );
  return ['The rungs, with the largest size that ran on each:', ...text.split('\n').map((line) => `  ${line}`)];
}

function rowsOf(probes: readonly ProbeRecord[]): Row[] {
  return [...new Set(probes.map(rungName))].map((rung) => {
    const tried = probes.filter((probe) => rungName(probe) === rung);
    const fits = tried.filter(({ outcome }) => outcome === 'fit');
    const failed = tried.filter(({ outcome }) => outcome === 'device_oom').map(({ micro_batch }) => micro_batch);
    const speeds = fits.map(({ samples_per_s: speed }) => speed ?? 0).filter((speed) => speed > 0);
    return {
      rung,
      largest: fits.toSorted((one, other) => one.micro_batch - other.micro_batch).at(-1) ?? null,
      tooLarge: failed.length === 0 ? null : Math.min(...failed),
      speed: speeds.length === 0 ? null : Math.max(...speeds),
    };
  });
}

const orDash = (value: number | string | null | undefined): string => (value == null ? '-' : String(value));
