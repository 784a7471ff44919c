import { completionScript } from '../completion/index.js';
import type { Verb } from '../verb.js';

const completionVerb: Verb = async ({ args, program }, { out }) => {
  const shell = args[0] as 'bash' | 'zsh' | 'fish';
  const script = completionScript(shell, program);
  if (out.json) out.document('completion', { schema: 1, shell, script });
  else out.data(script);
  return 0;
};

export default completionVerb;
