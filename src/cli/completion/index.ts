import type { Command } from 'commander';
import { bash } from './bash.js';
import { fish } from './fish.js';
import { grammarOf, type Shell } from './grammar.js';
import { zsh } from './zsh.js';

export function completionScript(shell: Shell, program: Command): string {
  return { bash, zsh, fish }[shell](grammarOf(program));
}
