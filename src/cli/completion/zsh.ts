import { type Grammar, type GrammarOption, parents, quote, SHELLS } from './grammar.js';

export function zsh(grammar: Grammar[]): string {
  const values = new Map<string, string>();
  for (const option of grammar.flatMap((one) => one.options)) {
    if (option.takes) for (const flag of option.flags) values.set(flag, answer(option));
  }
  const verbs = grammar.map((one) => {
    const options = one.options.flatMap((option) => option.flags.map((flag) => entry(flag, option.about)));
    const subs = one.subs.map((sub) => entry(sub.name, sub.about));
    return `    ${quote(one.path.join(' '))}) options=(${options.join(' ')}); subs=(${subs.join(' ')}); kind=${quote(one.words ?? '')} ;;`;
  });
  return `#compdef oomtune
# zsh completion of oomtune: oomtune completion zsh > a file named _oomtune in a folder of your fpath
_oomtune_words() {
  local -a found
  found=(\${(f)"$(oomtune __complete $1 2>/dev/null | sed -e 's/:/\\\\:/g' -e $'s/\\t/:/')"})
  _describe -t $1 $1 found
}
_oomtune() {
  local i verb kind
  local -a options subs
  for (( i = 2; i < CURRENT; i++ )); do
    # what follows the dashes is the user's own command
    if [[ $words[i] == -- ]]; then
      words=("\${(@)words[i+1,-1]}")
      (( CURRENT -= i ))
      _normal
      return
    fi
  done
  for (( i = 2; i < CURRENT; i++ )); do
    [[ $words[i] == -* ]] && continue
    verb=$words[i]
    case $verb in
      ${parents(grammar).join('|')}) (( i + 1 < CURRENT )) && [[ $words[i+1] != -* ]] && verb="$verb $words[i+1]" ;;
    esac
    break
  done
  case $words[CURRENT-1] in
${[...values].map(([flag, what]) => `    ${flag}) ${what}; return ;;`).join('\n')}
  esac
  case "$verb" in
${verbs.join('\n')}
  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe -o option options
    return
  fi
  case $kind in
    jobs|names) _oomtune_words $kind ;;
    shells) compadd ${SHELLS.join(' ')} ;;
    files) _files ;;
    *) (( $#subs )) && _describe verb subs ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _oomtune "$@"; else compdef _oomtune oomtune; fi`;
}

const entry = (word: string, about: string): string => quote(`${word.replaceAll(':', '\\:')}:${about}`);

function answer(option: GrammarOption): string {
  if (option.choices.length > 0) return `compadd ${option.choices.join(' ')}`;
  if (option.value === 'folder') return '_files -/';
  if (option.value === 'file') return '_files';
  return option.value === null ? "_message 'a value'" : `_oomtune_words ${option.value}`;
}
