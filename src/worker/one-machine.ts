import { usageError } from '../common/errors.js';
import type { CommandPlan } from './command/index.js';

/** Ranks on other machines would wait for sizes that only those here are given. */
export function requireOneMachine({ nodes, worldSize, program }: CommandPlan): void {
  if (Math.min(nodes, worldSize ?? nodes) < 2) return;
  throw usageError(
    `The command has its processes on ${nodes} machines (${program.nodesBy}), and one oomtune sets the sizes of those on its own machine only.`,
    `Search on one machine (\`${program.oneNode}\`), put placeholders ({micro_batch}) where the script takes its sizes, and start on each what \`oomtune recommend NAME --apply\` then prints. With --no-tune the command runs as it stands.`,
  );
}
