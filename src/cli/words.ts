import { formatBytes } from '../common/size.js';
import type { SpeedComparison } from '../contract/measurement.js';
import type { Rehearsal, RehearsedPhase } from '../contract/rehearsal.js';
import { type ConfigLike, type CutPlace, OWN_RUNG, rungName } from '../contract/rung.js';

export const cutWords = (cut: CutPlace): string => (cut === 'model' ? "at the model's call" : 'at the loader');

/** `micro-batch 42 × accumulation 2 × 4 GPUs = 336`. */
export function configWords(config: ConfigLike): string {
  const value = config.knob ? `${config.knob.name} ${config.knob.value} at ` : '';
  const product = [`${value}micro-batch ${config.micro_batch}`];
  if (config.micro_batch_tokens) product[0] += ` (${config.micro_batch_tokens} tokens)`;
  if (config.accumulation > 1) product.push(`accumulation ${config.accumulation}`);
  if (config.world_size > 1) product.push(`${config.world_size} devices`);
  return product.length === 1 ? (product[0] as string) : `${product.join(' × ')} = ${config.effective_batch}`;
}

/** The same with its rung. "As it stands" is a rung's name, and would contradict a cut. */
export function settingWords(config: ConfigLike & Parameters<typeof rungName>[0]): string {
  const rung = rungName(config);
  return rung === OWN_RUNG && config.accumulation > 1 ? configWords(config) : `${configWords(config)}, ${rung}`;
}

/** Bytes, or a dash where nothing was measured. */
export function bytesOr(value: number | null | undefined, dash = '-'): string {
  return value === null || value === undefined ? dash : formatBytes(value);
}

/** `2401` → `2401`, `24.53` → `24.5`, `0.1234` → `0.123`. */
export function rate(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toPrecision(3);
}

/** `31 ms`, `8.2 s`, `3 min 5 s`, `2 h 4 min`. */
export function seconds(value: number): string {
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `3 s ago`; a dash for null. */
export function ago(iso: string | null, now = Date.now()): string {
  if (iso === null) return '-';
  const passed = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (passed < 60) return `${Math.floor(passed)} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86_400)} d ago`;
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** A command as it can be pasted into a POSIX shell. */
export function shellWords(argv: string[]): string {
  return argv
    .map((word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(' ');
}

/** `bf16 1900 ± 12, as it stands 1200 ± 9 samples/s, in 5 turns of one process`: the fastest first; null: one rung only. */
export function comparisonText(comparison: SpeedComparison | null | undefined): string | null {
  if (!comparison || comparison.speeds.length < 2) return null;
  const fastest = comparison.speeds.toSorted((a, b) => b.samples_per_s - a.samples_per_s);
  const speeds = fastest.map((one) => {
    const spread = one.spread === null ? '' : ` ± ${rate(one.spread)}`;
    return `${rungName(one)} ${rate(one.samples_per_s)}${spread}`;
  });
  const turns = Math.max(...comparison.speeds.map(({ rounds }) => rounds));
  const how = comparison.together ? `in ${plural(turns, 'turn')} of one process` : 'each in a launch of its own';
  return `${speeds.join(', ')} samples/s, ${how}`;
}

const PHASES: Record<RehearsedPhase, string> = {
  train: 'training',
  eval: 'evaluation',
  generate: 'generation',
  save: 'saving',
};

/** The peaks of `--probe-eval` by phase; null: there are none. */
export function rehearsalText(rehearsal: Rehearsal | null | undefined): string | null {
  if (!rehearsal || rehearsal.phases.length === 0) return null;
  const phases = rehearsal.phases.map(({ phase, peak_bytes: peak, whole_bytes: whole, of_batches: of }) => {
    const all = whole === null ? '' : `, ${formatBytes(whole)} with all ${of} batches`;
    const failed = phase === rehearsal.out_of_memory ? ' (out of memory)' : '';
    return `${PHASES[phase]} ${bytesOr(peak, 'unknown')}${all}${failed}`;
  });
  if (!rehearsal.phases.some(({ phase }) => phase === 'eval' || phase === 'generate'))
    phases.push('no evaluation seen');
  return phases.join('; ');
}
