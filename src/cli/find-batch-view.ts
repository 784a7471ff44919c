import { formatBytes } from '../common/size.js';
import { plain } from '../common/terminal.js';
import type { KnobAnswer } from '../contract/knob.js';
import type { FindBatchReport } from '../contract/reports.js';
import { type ConfigLike, rungName } from '../contract/rung.js';
import { EXPANDABLE_SEGMENTS } from '../worker/memory/allocator.js';
import { curveText } from './curve-text.js';
import { drawingWidth, memoryBar } from './memory-bar.js';
import { continued, type Paint } from './output.js';
import { spent } from './progress.js';
import { facts } from './table.js';
import { comparisonText, configWords, plural, rate, rehearsalText, shellWords } from './words.js';

/** The text after a successful search. */
export function renderFound(raw: FindBatchReport, paint: Paint): string {
  const report = plain(raw);
  const { config, device } = report;
  if (config === null) return '';
  const head = `${paint('bold', report.name)} on ${device.model}, ${formatBytes(device.budget_bytes)} budget`;
  const room = formatBytes(device.room_bytes ?? device.budget_bytes);
  const peak = report.peak_bytes;
  const headroom = report.headroom_pct === null ? '' : `, ${report.headroom_pct} % free`;
  const table = facts([
    ['the script', report.own === null ? null : `asks for ${configWords(ownConfig(config, report.own))} by itself`],
    ['recommended', `${paint('green', paint('bold', configWords(config)))}, ${rungName(config)}`],
    ...knobFacts(report.knob),
    [
      'largest',
      report.knob !== undefined || report.max_micro_batch === null ? null : `micro-batch ${report.max_micro_batch}`,
    ],
    ['peak', peak === null ? null : `${formatBytes(peak)} of ${room}${headroom}`],
    ['phases', rehearsalText(report.rehearsal)],
    ['speed', report.samples_per_s === null ? null : `${rate(report.samples_per_s)} samples/s`],
    ['compared', comparisonText(report.comparison)],
    ['search', spent(report.launches, report.probes.length, report.wall_s)],
    ['recorded', report.key],
  ]);
  const said = report.notes ?? [];
  const notes = said.map((note) => `  ${paint('yellow', 'note:')} ${note}`);
  const paste = report.apply === null ? [] : ['', ...howToRun(report, report.apply, paint)];
  return [head, table, ...picture(report, paint), ...(said.length > 0 ? ['', ...notes] : []), ...paste].join('\n');
}

/** Without what has no value of its own: the knob, a limit of tokens. */
const ownConfig = (
  { knob, micro_batch_tokens, ...config }: ConfigLike,
  own: NonNullable<FindBatchReport['own']>,
): ConfigLike => ({
  ...config,
  ...own,
});

/** What is said of a knob of the command's own. */
export function knobFacts(knob: KnobAnswer | undefined): [string, string | null][] {
  if (knob === undefined) return [];
  const { name, max, smallest_failing: failing, bounded_by: by } = knob;
  const beyond =
    failing === null ? '' : by === 'script' ? `; the script fails with ${failing}` : `; ${failing} runs out of memory`;
  return [['largest', `${name} ${max}${beyond}`]];
}

/** The first line keeps the script's effective batch; the second, with a larger one, says that it trains otherwise. */
function howToRun(report: FindBatchReport, apply: NonNullable<FindBatchReport['apply']>, paint: Paint): string[] {
  const { own, config } = report;
  const direct = plainCommand(report);
  const columns = process.stdout.isTTY ? process.stdout.columns || 80 : undefined;
  const line = (title: string, words: string): string =>
    continued(words, `  ${paint('dim', `${title}:`)}${' '.repeat(8 - title.length - 1)}`, columns);
  const or = direct === null ? [] : [line('or', direct)];
  const larger = line('run it', shellWords(apply.oomtune));
  if (apply.own === undefined || own === null || config === null) return [larger, ...or];
  const keeps = line('run it', shellWords(apply.own));
  const same = shellWords(apply.own) === shellWords(apply.oomtune);
  if (same || config.effective_batch <= own.effective_batch) return [keeps, ...or];
  return [keeps, line('larger', shellWords(apply.oomtune)), ...or, `  ${meaning(own, config)}`];
}

function meaning(own: NonNullable<FindBatchReport['own']>, { effective_batch }: ConfigLike): string {
  const steps = (size: number): number => Math.ceil((own.samples as number) / size);
  const epoch =
    own.samples === null || steps(effective_batch) === steps(own.effective_batch)
      ? ''
      : `, and an epoch ${plural(steps(effective_batch), 'step')} instead of ${steps(own.effective_batch)}`;
  const times = effective_batch / own.effective_batch;
  return `The larger one gives each step ${Number(times.toPrecision(3))} times the samples${epoch}: it trains otherwise. The learning rate and its schedule stay as they are written, and have to be chosen anew.`;
}

function picture({ memory, device, config }: FindBatchReport, paint: Paint): string[] {
  if (memory === null || config === null) return [];
  const width = drawingWidth();
  const bar = memoryBar(memory, device.budget_bytes, paint, width);
  const curve = curveText(memory, device.budget_bytes, paint, width - 6) ?? [];
  const title = (text: string): string => `  ${paint('bold', text)}`;
  return [
    '',
    title(`memory at micro-batch ${memory.micro_batch}`),
    ...bar.map((line) => `  ${line}`),
    ...(curve.length > 0
      ? ['', title(`peak by micro-batch, ${rungName(config)}`), ...curve.map((line) => `  ${line}`)]
      : []),
  ];
}

const ALLOCATOR = Object.entries(EXPANDABLE_SEGMENTS)[0]?.join('=') as string;

/** The command without oomtune, when argv alone carries the answer. */
function plainCommand(report: FindBatchReport): string | null {
  if (report.apply === null) return null;
  const argv = report.apply.argv;
  const bare = report.apply.oomtune.slice(report.apply.oomtune.indexOf('--') + 1);
  return argv.join('\0') === bare.join('\0')
    ? null
    : shellWords(report.config?.expandable_segments ? ['env', ALLOCATOR, ...argv] : argv);
}
