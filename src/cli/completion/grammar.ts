import type { Command, Option } from 'commander';

/** A verb as a shell completes it, read from the program. */
export interface Grammar {
  path: string[];
  subs: { name: string; about: string }[];
  options: GrammarOption[];
  /** What its positional arguments are. */
  words: 'jobs' | 'names' | 'shells' | 'files' | null;
}

export interface GrammarOption {
  flags: string[];
  about: string;
  takes: boolean;
  /** What its value is: one of these words, … */
  choices: string[];
  /** … or one of these things, … */
  value: 'file' | 'folder' | 'presets' | 'jobs' | null;
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

const WORDS: Record<string, Grammar['words']> = { job: 'jobs', name: 'names', shell: 'shells', file: 'files' };
const VALUES: Record<string, GrammarOption['value']> = {
  '--env-file': 'file',
  '--report': 'file',
  '--cwd': 'folder',
  '--preset': 'presets',
  '--after': 'jobs',
  '--after-any': 'jobs',
};

/** The program itself first, then every verb. */
export function grammarOf(command: Command, path: string[] = []): Grammar[] {
  const subs = command.commands.filter((sub) => !sub.name().startsWith('_'));
  const own: Grammar = {
    path,
    subs: subs.map((sub) => ({ name: sub.name(), about: sub.description() })),
    options: command.createHelp().visibleOptions(command).map(describe),
    words: WORDS[command.registeredArguments[0]?.name() ?? ''] ?? null,
  };
  return [own, ...subs.flatMap((sub) => grammarOf(sub, [...path, sub.name()]))];
}

function describe(option: Option): GrammarOption {
  return {
    flags: [option.short, option.long].filter((flag): flag is string => Boolean(flag)),
    about: option.description,
    takes: option.required || option.optional,
    choices: option.argChoices ?? [],
    value: VALUES[option.long ?? ''] ?? null,
  };
}

/** Single quotes as sh and zsh read them, and fish except for the backslash. */
export const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Verbs with sub-verbs. */
export const parents = (grammar: Grammar[]): string[] =>
  grammar.filter((one) => one.path.length === 1 && one.subs.length > 0).map((one) => one.path[0] as string);
