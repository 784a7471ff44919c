import type { SpeedComparison } from '../contract/measurement.js';
import { rungName } from '../contract/rung.js';
import { plural, rate } from './words.js';

/** `bf16 1900 ± 12, full precision 1200 ± 9 samples/s, in 5 turns of one process`: the fastest first; null: one rung only. */
export function comparisonText(comparison: SpeedComparison | null | undefined): string | null {
  if (!comparison || comparison.speeds.length < 2) return null;
  const fastest = comparison.speeds.toSorted((a, b) => b.samples_per_s - a.samples_per_s);
  const told = fastest.map((one) => {
    const spread = one.spread === null ? '' : ` ± ${rate(one.spread)}`;
    return `${rungName(one)} ${rate(one.samples_per_s)}${spread}`;
  });
  const turns = Math.max(...comparison.speeds.map(({ rounds }) => rounds));
  const how = comparison.together ? `in ${plural(turns, 'turn')} of one process` : 'each in a launch of its own';
  return `${told.join(', ')} samples/s, ${how}`;
}
