import { statSync } from 'node:fs';
import { endOfRegular } from '../common/regular-file.js';
import { formatBytes } from '../common/size.js';
import { plain } from '../common/terminal.js';
import type { ProbeRecord } from '../contract/measurement.js';
import { rungName, sameRung } from '../contract/rung.js';
import type { Progress } from '../worker/types.js';
import { ascii, asciiOnly, beginning, type Paint, paintFor, width, wrapped } from './output.js';
import { SearchSeconds } from './search-seconds.js';
import { oneLine } from './table.js';
import { bytesOr, plural, rate, settingWords } from './words.js';

/** Shows the worker's progress on stderr. */
export interface ProgressView {
  show(event: Progress): void;
  /** Wipes the live line: called before anything else is written. */
  close(): void;
}

interface ProgressStream {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const BAR = 12;

/** On a terminal the current probe has one live line, which its result replaces; in a pipe each event is one plain line. */
export function createProgress(stream: ProgressStream, env: NodeJS.ProcessEnv = process.env): ProgressView {
  const live = Boolean(stream.isTTY) && env.TERM !== 'dumb' && !env.CI;
  const paint = paintFor(stream, env);
  const signs = asciiOnly(env) ? ascii : (text: string): string => text;
  let budget = 0;
  let shown = false;
  let spentOn = new SearchSeconds();

  const wipe = () => {
    if (shown) stream.write('\r\u001b[K');
    shown = false;
  };
  /** The output of the job that runs; how far it had come when a line was begun after it. */
  let output: string | null = null;
  let brokenAt: number | null = null;
  /** A job's output may end within a line, as a progress bar does: what is told begins its own. */
  const breakLine = () => {
    const at = output === null ? null : openLineAt(output);
    if (at !== null && at !== brokenAt) stream.write('\n');
    brokenAt = at;
  };
  const line = (text: string) => {
    wipe();
    breakLine();
    const plain = signs(oneLine(text));
    stream.write(`${wrapped(plain, stream.isTTY ? stream.columns || 80 : undefined)}\n`);
  };
  const liveLine = (text: string) => {
    wipe();
    const room = (stream.columns || 80) - 1;
    const plain = signs(oneLine(text));
    stream.write(
      paint('dim', width(plain) > room ? `${beginning(plain, room - width(signs('…')))}${signs('…')}` : plain),
    );
    shown = true;
  };

  const told = new Set<string>();

  /** The last of a search; the steps of a run are none of it. */
  const searched = (total?: number): void => {
    wipe();
    const summary = spentOn.summary(total);
    spentOn = new SearchSeconds();
    if (summary !== null) line(paint('dim', summary));
  };

  return {
    close: wipe,
    show(sent) {
      const event = plain(sent);
      spentOn.see(event);
      switch (event.type) {
        case 'waiting':
          (live ? liveLine : line)(event.reason.replace(/^waits/, 'waiting'));
          break;
        case 'device':
          budget = event.budgetBytes;
          line(`${paint('bold', event.device.id)}  ${event.device.model}, budget ${formatBytes(event.budgetBytes)}`);
          break;
        case 'interpreter':
          line(paint('dim', `python  ${event.path}${event.torch ? ` (torch ${event.torch})` : ''}`));
          break;
        case 'launch':
          line(`launch ${event.launch}${event.rung ? `  ${paint('cyan', rungName(event.rung))}` : ''}`);
          if (live) liveLine(`  … starting  ${event.why}`);
          break;
        case 'life':
          line(`launch ${event.launch}, life ${event.life}`);
          if (live) liveLine(`  … starting  ${event.why}`);
          break;
        case 'probing':
          if (live) liveLine(`  … ${triedWords(event.probe)}  ${event.probe.why}`);
          break;
        case 'probe':
          line(probeLine(event.record, budget, paint));
          break;
        case 'found':
          searched(event.report.wall_s);
          break;
        case 'reused':
          line(`${paint('green', 'recorded')}  ${event.recommendation.key}: ${settingWords(event.recommendation)}`);
          break;
        case 'running':
          searched();
          line(`${paint('bold', 'running')}  ${event.config ? settingWords(event.config) : 'as it stands'}`);
          output = event.logFile;
          break;
        case 'said':
          line('The last launch of the search wrote at its end:');
          for (const one of event.lines) line(paint('dim', `  ${one}`));
          break;
        case 'note':
          // A search and the run after it have the same to say of a command.
          if (!told.has(event.text)) line(`${paint('yellow', 'note:')} ${event.text}`);
          told.add(event.text);
          break;
      }
    },
  };
}

/** How many bytes the output has where it ends within a line; null: it does not, or cannot be read, which a note is not worth an error. */
function openLineAt(path: string): number | null {
  try {
    const last = endOfRegular(path, 1)?.text ?? '';
    return last === '' || last === '\n' ? null : statSync(path).size;
  } catch {
    return null;
  }
}

/** What became of a probe. `budget` in bytes; 0: not known. */
export function probeLine(record: ProbeRecord, budget: number, paint: Paint): string {
  const speed = record.samples_per_s ?? null;
  const fits = record.outcome === 'fit';
  const oom = record.outcome === 'device_oom';
  const mark = fits ? paint('green', '✓') : oom ? paint('yellow', '✗') : paint('red', '!');
  const parts = [
    `  ${mark} ${triedWords(record, 5)}`,
    `${bar(record.peak_bytes, budget, oom)}${budget <= 0 ? '' : ' '}${bytesOr(record.peak_bytes).padStart(9)}`,
    fits && speed !== null ? `${rate(speed).padStart(6)} samples/s` : ' '.repeat(16),
    // One process may try several rungs, so each size names its precision unless it is the script's own.
    ...(sameRung(record, { amp: 'off', checkpointing: false }) ? [] : [paint('cyan', rungName(record))]),
    fits ? paint('green', 'fit') : oom ? paint('yellow', 'out of memory') : paint('red', record.outcome),
  ];
  const why = fits ? record.why : (record.evidence ?? record.why);
  if (why) parts.push(paint('dim', why.length > 110 ? `${why.slice(0, 109)}…` : why));
  return parts.join('  ');
}

/** `micro-batch 8`, or the value of the knob that is searched. */
function triedWords({ knob, micro_batch }: Pick<ProbeRecord, 'knob' | 'micro_batch'>, digits = 0): string {
  return `${knob?.name ?? 'micro-batch'} ${String(knob?.value ?? micro_batch).padStart(digits)}`;
}

/** The peak relative to the budget; full if it ran out of memory. */
function bar(peak: number | null, budget: number, oom: boolean): string {
  if (budget <= 0) return '';
  const part = oom ? 1 : (peak ?? 0) / budget;
  const full = Math.max(0, Math.min(BAR, Math.round(part * BAR)));
  return `${'█'.repeat(full)}${'░'.repeat(BAR - full)}`;
}

/** One sentence at the end of a search. */
export function spent(launches: number, probes: number, wall: number): string {
  return `${plural(probes, 'probe')} in ${plural(launches, 'launch', 'launches')}, ${wall.toFixed(1)} s`;
}
