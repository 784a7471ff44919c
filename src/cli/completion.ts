import type { Command, Option } from 'commander';

/** What the three shells need to know, read off the program itself. */
interface Node {
  path: string[];
  about: string;
  subs: { name: string; about: string }[];
  options: { flags: string[]; about: string; takes: boolean; choices: string[]; files: 'file' | 'folder' | null }[];
  /** What its positional arguments are. */
  words: 'jobs' | 'names' | 'shells' | 'files' | null;
}

const WORDS: Record<string, Node['words']> = { job: 'jobs', name: 'names', shell: 'shells', file: 'files' };
const FILES: Record<string, 'file' | 'folder'> = { file: 'file', dir: 'folder' };

export function completionScript(shell: 'bash' | 'zsh' | 'fish', program: Command): string {
  const nodes = collect(program, []);
  return { bash, zsh, fish }[shell](nodes);
}

function collect(command: Command, path: string[]): Node[] {
  const subs = command.commands.filter((sub) => !sub.name().startsWith('__'));
  const argument = command.registeredArguments[0]?.name() ?? '';
  const own: Node = {
    path,
    about: command.description(),
    subs: subs.map((sub) => ({ name: sub.name(), about: sub.description() })),
    options: command.createHelp().visibleOptions(command).map(describe),
    words: WORDS[argument] ?? null,
  };
  return [own, ...subs.flatMap((sub) => collect(sub, [...path, sub.name()]))];
}

function describe(option: Option): Node['options'][number] {
  const value = /[<[]([a-z]+)/.exec(option.flags)?.[1] ?? '';
  return {
    flags: [option.short, option.long].filter((flag): flag is string => Boolean(flag)),
    about: option.description,
    takes: option.required || option.optional,
    choices: option.argChoices ?? [],
    files: FILES[value] ?? null,
  };
}

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
const name = (node: Node): string => ['', ...node.path].join('_').replaceAll('-', '_');

function bash(nodes: Node[]): string {
  const cases = nodes.map((node) => {
    const words = [...node.subs.map((sub) => sub.name), ...node.options.flatMap((option) => option.flags)];
    return `    ${quote(node.path.join(' '))}) words=${quote(words.join(' '))}; kind=${quote(node.words ?? '')} ;;`;
  });
  const values = new Map<string, string>();
  for (const option of nodes.flatMap((node) => node.options)) {
    if (!option.takes) continue;
    const reply =
      option.choices.length > 0
        ? `COMPREPLY=($(compgen -W ${quote(option.choices.join(' '))} -- "$cur"))`
        : option.files === 'folder'
          ? 'COMPREPLY=($(compgen -d -- "$cur"))'
          : option.files === 'file'
            ? 'COMPREPLY=($(compgen -f -- "$cur"))'
            : option.flags.includes('--preset')
              ? 'COMPREPLY=($(compgen -W "$(oomtune __complete presets 2>/dev/null | cut -f1)" -- "$cur"))'
              : option.flags.includes('--after')
                ? 'COMPREPLY=($(compgen -W "$(oomtune __complete jobs 2>/dev/null | cut -f1)" -- "$cur"))'
                : 'COMPREPLY=()';
    for (const flag of option.flags) values.set(flag, reply);
  }
  const parents = nodes.filter((node) => node.path.length === 1 && node.subs.length > 0).map((node) => node.path[0]);
  return `# bash completion of oomtune: source <(oomtune completion bash)
_oomtune() {
  local cur prev verb words kind i
  cur="\${COMP_WORDS[COMP_CWORD]}"
  prev="\${COMP_WORDS[COMP_CWORD-1]}"
  # the line is split at colons too: after the dashes it is the user's own command
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ "\${COMP_WORDS[i]}" == -- ]]; then
      COMPREPLY=($(compgen -f -- "$cur"))
      return
    fi
  done
  verb=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ "\${COMP_WORDS[i]}" == -* ]] && continue
    verb="\${COMP_WORDS[i]}"
    case "$verb" in
      ${parents.join('|')}) [[ $((i + 1)) -lt $COMP_CWORD && "\${COMP_WORDS[i+1]}" != -* ]] && verb="$verb \${COMP_WORDS[i+1]}" ;;
    esac
    break
  done
  case "$prev" in
${[...values].map(([flag, reply]) => `    ${flag}) ${reply}; return ;;`).join('\n')}
  esac
  case "$verb" in
${cases.join('\n')}
    *) words=""; kind="" ;;
  esac
  if [[ "$cur" != -* ]]; then
    case "$kind" in
      jobs|names) words="$words $(oomtune __complete "$kind" 2>/dev/null | cut -f1)" ;;
      shells) words="bash zsh fish" ;;
      files) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$cur"; fi
}
complete -F _oomtune oomtune`;
}

function zsh(nodes: Node[]): string {
  const plain = (text: string): string => text.replace(/[[\]:\\]/g, '\\$&').replaceAll("'", '');
  const functions = nodes.map((node) => {
    const options = node.options.map((option) => {
      const about = `[${plain(option.about)}]`;
      const takes = option.takes
        ? option.choices.length > 0
          ? `:value:(${option.choices.join(' ')})`
          : option.files === 'folder'
            ? ':folder:_files -/'
            : option.files === 'file'
              ? ':file:_files'
              : option.flags.includes('--preset')
                ? ':preset:_oomtune_words presets'
                : option.flags.includes('--after')
                  ? ':job:_oomtune_words jobs'
                  : ':value: '
        : '';
      return option.flags.map((flag) => `    '*${flag}${about}${takes}'`).join(' \\\n');
    });
    const rest =
      node.subs.length > 0
        ? [
            `    '1:verb:((${node.subs.map((sub) => `${sub.name}\\:"${plain(sub.about).replaceAll('"', '')}"`).join(' ')}))'`,
            "    '*::argument:->rest'",
          ]
        : node.words === 'jobs' || node.words === 'names'
          ? [`    '*:${node.words}:_oomtune_words ${node.words}'`]
          : node.words === 'shells'
            ? ["    '1:shell:(bash zsh fish)'"]
            : ["    '*::command:_normal'"];
    const descend =
      node.subs.length > 0
        ? `\n  [[ $state == rest ]] && case $words[1] in\n${node.subs
            .map((sub) => `    ${sub.name}) _oomtune${name({ ...node, path: [...node.path, sub.name] })} ;;`)
            .join('\n')}\n  esac`
        : '';
    return `_oomtune${name(node)}() {
  local state line
  if (( \${words[(I)--]} && \${words[(I)--]} < CURRENT )); then
    shift $((\${words[(I)--]})) words; (( CURRENT -= \${words[(I)--]} )); _normal; return
  fi
  _arguments -C \\
${[...options, ...rest].join(' \\\n')}${descend}
}`;
  });
  return `#compdef oomtune
# zsh completion of oomtune: put this in a file _oomtune on your fpath
_oomtune_words() {
  local -a found
  found=(\${(f)"$(oomtune __complete $1 2>/dev/null | sed -e 's/:/\\\\:/g' -e 's/\\t/:/')"})
  _describe -t $1 $1 found
}
${functions.join('\n')}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _oomtune "$@"; else compdef _oomtune oomtune; fi`;
}

function fish(nodes: Node[]): string {
  const lines = [
    '# fish completion of oomtune: oomtune completion fish > ~/.config/fish/completions/oomtune.fish',
    'complete -c oomtune -f',
    'function __oomtune_own; not contains -- -- (commandline -opc); end',
    'complete -c oomtune -n "not __oomtune_own" -F',
  ];
  const verbs = nodes[0]?.subs.map((sub) => sub.name).join(' ') ?? '';
  for (const node of nodes) {
    const [first, second] = node.path;
    const parent = nodes.find((other) => other.path.length === 1 && other.path[0] === first);
    const siblings = parent?.subs.map((sub) => sub.name).join(' ') ?? '';
    const when =
      first === undefined
        ? `__oomtune_own; and not __fish_seen_subcommand_from ${verbs}`
        : second === undefined
          ? `__oomtune_own; and __fish_seen_subcommand_from ${first}${siblings ? `; and not __fish_seen_subcommand_from ${siblings}` : ''}`
          : `__oomtune_own; and __fish_seen_subcommand_from ${first}; and __fish_seen_subcommand_from ${second}`;
    const start = `complete -c oomtune -n ${quote(when)}`;
    for (const sub of node.subs) lines.push(`${start} -a ${sub.name} -d ${quote(sub.about)}`);
    if (node.words === 'jobs' || node.words === 'names')
      lines.push(`${start} -a '(oomtune __complete ${node.words} 2>/dev/null)'`);
    if (node.words === 'shells') lines.push(`${start} -a 'bash zsh fish'`);
    if (node.words === 'files') lines.push(`${start} -F`);
    for (const option of node.options) {
      const flags = option.flags
        .map((flag) => (flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`))
        .join(' ');
      const value = !option.takes
        ? ''
        : option.choices.length > 0
          ? ` -x -a ${quote(option.choices.join(' '))}`
          : option.files
            ? ' -r -F'
            : option.flags.includes('--preset')
              ? " -x -a '(oomtune __complete presets 2>/dev/null)'"
              : option.flags.includes('--after')
                ? " -x -a '(oomtune __complete jobs 2>/dev/null)'"
                : ' -x';
      lines.push(`${start} ${flags}${value} -d ${quote(option.about)}`);
    }
  }
  return lines.join('\n');
}
