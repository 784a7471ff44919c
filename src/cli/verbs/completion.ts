import { bash } from '../completion/bash.js';
import { fish } from '../completion/fish.js';
import { grammarOf, type Shell } from '../completion/grammar.js';
import { zsh } from '../completion/zsh.js';
import type { Verb } from '../verb.js';

export default (async ({ args, program }, { out }) => {
  const shell = args[0] as Shell;
  const script = { bash, zsh, fish }[shell](grammarOf(program));
  if (out.json) out.document('completion', { schema: 1, shell, script });
  else out.data(script);
  return 0;
}) satisfies Verb;
