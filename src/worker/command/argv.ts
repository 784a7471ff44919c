import type { OptionRule } from '../presets/schema.js';

/** One place in argv that gives an option. */
export interface Occurrence {
  index: number;
  /** Arguments that it takes up: 2 for `--x 8`. */
  span: 1 | 2;
  /** Everything in front of the value, when name and value share an argument: `--x=`, `-b`, `++batch=`. */
  prefix: string | null;
  /** null: a bare flag. */
  value: string | null;
}

/** A subcommand of tyro's: `activation_checkpoint:none`. */
const WORD = /^([A-Za-z_][\w.-]*):([\w.-]+)$/;
const BOOLEAN = /^(?:true|false|yes|no|on|off|t|f|y|n|1|0)$/i;

/** Whether a text means "off". */
export function isFalsy(value: unknown): boolean {
  return (
    value === false ||
    value === null ||
    (typeof value !== 'boolean' && /^(?:false|no|off|f|n|0|none|null)$/i.test(String(value)))
  );
}

function sameFlag(written: string, flag: string, rule: OptionRule): boolean {
  if (written === flag) return true;
  return (
    rule.dashes === 'any' && written.startsWith('--') && written.replaceAll('_', '-') === flag.replaceAll('_', '-')
  );
}

/** Every place where the program's arguments give the option, in order. Nothing after a bare `--` is an option. */
export function findOption(args: readonly string[], rule: OptionRule): Occurrence[] {
  const found: Occurrence[] = [];
  for (let index = 0; index < args.length; index += 1) {
    const arg = args[index] as string;
    if (arg === '--') break;
    const occurrence = matchKey(arg, index, rule) ?? matchFlag(args, index, rule);
    if (!occurrence) continue;
    found.push(occurrence);
    index += occurrence.span - 1;
  }
  return found;
}

function matchKey(arg: string, index: number, rule: OptionRule): Occurrence | null {
  const match = /^(\+{0,2})([^=\s{]+)=(.*)$/s.exec(arg);
  if (match && rule.keys?.includes(match[2] as string))
    return { index, span: 1, prefix: `${match[1]}${match[2]}=`, value: match[3] as string };
  const word = rule.words ? WORD.exec(arg) : null;
  if (word && rule.words?.includes((word[1] as string).replaceAll('-', '_')))
    return { index, span: 1, prefix: `${word[1]}:`, value: word[2] as string };
  return null;
}

function matchFlag(args: readonly string[], index: number, rule: OptionRule): Occurrence | null {
  const arg = args[index] as string;
  if (!arg.startsWith('-')) return null;
  for (const flag of rule.flags ?? []) {
    if (sameFlag(arg, flag, rule)) {
      const next = args[index + 1];
      if (rule.takes === 'nothing' || next === undefined) return { index, span: 1, prefix: null, value: null };
      if (rule.takes === 'boolean' && !BOOLEAN.test(next)) return { index, span: 1, prefix: null, value: null };
      return { index, span: 2, prefix: null, value: next };
    }
    const equals = arg.indexOf('=');
    if (equals > 0 && sameFlag(arg.slice(0, equals), flag, rule))
      return { index, span: 1, prefix: arg.slice(0, equals + 1), value: arg.slice(equals + 1) };
    // `-b8`, as argparse and getopt read it.
    if (/^-[A-Za-z]$/.test(flag) && rule.takes === 'value' && arg.startsWith(flag) && /^\d/.test(arg.slice(2)))
      return { index, span: 1, prefix: flag, value: arg.slice(2) };
  }
  return null;
}

/** The arguments without some of the places. */
export function removeOccurrences(args: readonly string[], occurrences: readonly Occurrence[]): string[] {
  const gone = new Set(occurrences.flatMap((p) => (p.span === 2 ? [p.index, p.index + 1] : [p.index])));
  return args.filter((_, index) => !gone.has(index));
}

/** The arguments with the option's last place changed to `value` and its earlier places (which lost anyway) removed. */
export function replaceOption(args: readonly string[], occurrences: readonly Occurrence[], value: string): string[] {
  const last = occurrences.at(-1);
  if (!last) return [...args];
  const out = [...args];
  if (last.prefix !== null) out[last.index] = `${last.prefix}${value}`;
  else if (last.span === 2) out[last.index + 1] = value;
  else out.splice(last.index + 1, 0, value); // a flag at the very end that had lost its value
  return removeOccurrences(out, occurrences.slice(0, -1));
}

/** The arguments with more of them at the end, but before a bare `--` and (`words`: tyro) before its subcommands. */
export function appendArguments(args: readonly string[], more: readonly string[], words: boolean): string[] {
  const end = args.findIndex((arg) => arg === '--' || (words && WORD.test(arg)));
  return end < 0 ? [...args, ...more] : [...args.slice(0, end), ...more, ...args.slice(end)];
}
