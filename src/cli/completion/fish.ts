import { type Grammar, type GrammarOption, SHELLS } from './grammar.js';

/** fish unescapes backslashes inside single quotes. */
const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

export function fish(grammar: Grammar[]): string {
  const lines = [
    '# fish completion of oomtune: oomtune completion fish > ~/.config/fish/completions/oomtune.fish',
    "# what follows the dashes is the user's own command",
    'function __oomtune_own; not contains -- -- (commandline -opc); end',
    'complete -c oomtune -f',
    "complete -c oomtune -n 'not __oomtune_own' -F",
  ];
  const top = grammar[0]?.subs.map((sub) => sub.name).join(' ') ?? '';
  for (const one of grammar) {
    const start = `complete -c oomtune -n ${quote(condition(one, grammar, top))}`;
    for (const sub of one.subs) lines.push(`${start} -a ${sub.name} -d ${quote(sub.about)}`);
    if (one.words === 'jobs' || one.words === 'names')
      lines.push(`${start} -a '(oomtune __complete ${one.words} 2>/dev/null)'`);
    if (one.words === 'shells') lines.push(`${start} -a ${quote(SHELLS.join(' '))}`);
    if (one.words === 'files') lines.push(`${start} -F`);
    for (const option of one.options) lines.push(`${start} ${flags(option)}${value(option)} -d ${quote(option.about)}`);
  }
  return lines.join('\n');
}

function condition(one: Grammar, grammar: Grammar[], top: string): string {
  const [first, second] = one.path;
  if (first === undefined) return `__oomtune_own; and not __fish_seen_subcommand_from ${top}`;
  const seen = `__oomtune_own; and __fish_seen_subcommand_from ${first}`;
  if (second !== undefined) return `${seen}; and __fish_seen_subcommand_from ${second}`;
  const below = grammar.find((other) => other.path.length === 1 && other.path[0] === first)?.subs ?? [];
  const names = below.map((sub) => sub.name).join(' ');
  return names === '' ? seen : `${seen}; and not __fish_seen_subcommand_from ${names}`;
}

function flags(option: GrammarOption): string {
  return option.flags.map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`)).join(' ');
}

function value(option: GrammarOption): string {
  if (!option.takes) return '';
  if (option.choices.length > 0) return ` -x -a ${quote(option.choices.join(' '))}`;
  if (option.value === 'file' || option.value === 'folder') return ' -r -F';
  return option.value === null ? ' -x' : ` -x -a '(oomtune __complete ${option.value} 2>/dev/null)'`;
}
