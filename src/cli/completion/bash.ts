import { type Grammar, type GrammarOption, parents, quote, SHELLS } from './grammar.js';

export function bash(grammar: Grammar[]): string {
  const values = new Map<string, string>();
  for (const option of grammar.flatMap((one) => one.options)) {
    if (option.takes) for (const flag of option.flags) values.set(flag, reply(option));
  }
  const verbs = grammar.map((one) => {
    const words = [...one.subs.map((sub) => sub.name), ...one.options.flatMap((option) => option.flags)];
    return `    ${quote(one.path.join(' '))}) words=${quote(words.join(' '))}; kind=${quote(one.words ?? '')} ;;`;
  });
  return `# bash completion of oomtune: source <(oomtune completion bash)
_oomtune() {
  local cur prev verb words kind i
  cur="\${COMP_WORDS[COMP_CWORD]}"
  prev="\${COMP_WORDS[COMP_CWORD-1]}"
  for ((i = 1; i < COMP_CWORD; i++)); do
    # what follows the dashes is the user's own command
    [[ "\${COMP_WORDS[i]}" == -- ]] && { COMPREPLY=($(compgen -c -f -- "$cur")); return; }
  done
  verb=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ "\${COMP_WORDS[i]}" == -* ]] && continue
    verb="\${COMP_WORDS[i]}"
    case "$verb" in
      ${parents(grammar).join('|')}) [[ $((i + 1)) -lt $COMP_CWORD && "\${COMP_WORDS[i+1]}" != -* ]] && verb="$verb \${COMP_WORDS[i+1]}" ;;
    esac
    break
  done
  case "$prev" in
${[...values].map(([flag, answer]) => `    ${flag}) ${answer}; return ;;`).join('\n')}
  esac
  case "$verb" in
${verbs.join('\n')}
    *) words=""; kind="" ;;
  esac
  if [[ "$cur" != -* ]]; then
    case "$kind" in
      jobs|names) words="$words $(oomtune __complete "$kind" 2>/dev/null | cut -f1)" ;;
      shells) words=${quote(SHELLS.join(' '))} ;;
      files) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  # bash takes a colon for the end of a word, and keys have colons
  if declare -F __ltrim_colon_completions >/dev/null; then __ltrim_colon_completions "$cur"; fi
}
complete -F _oomtune oomtune`;
}

function reply(option: GrammarOption): string {
  if (option.choices.length > 0) return `COMPREPLY=($(compgen -W ${quote(option.choices.join(' '))} -- "$cur"))`;
  if (option.value === 'folder') return 'COMPREPLY=($(compgen -d -- "$cur"))';
  if (option.value === 'file') return 'COMPREPLY=($(compgen -f -- "$cur"))';
  if (option.value === null) return 'COMPREPLY=()';
  return `COMPREPLY=($(compgen -W "$(oomtune __complete ${option.value} 2>/dev/null | cut -f1)" -- "$cur"))`;
}
