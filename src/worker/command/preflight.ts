import type { JobOptions } from '../../contract/options.js';
import { findCommand } from '../../runtime/command.js';
import { jobEnvironment } from './environment.js';
import { recognise } from './index.js';
import { askInterpreter } from './torch.js';

/**
 * Refuses what could not begin on this host, as `find-batch` would. Throws OOMTUNE_COMMAND_MISSING and
 * OOMTUNE_TORCH_MISSING.
 */
export async function preflight(
  command: string[],
  options: JobOptions,
  environment: Record<string, string | undefined>,
): Promise<void> {
  const env = jobEnvironment(options, environment);
  findCommand(command[0] as string, env, options.cwd);
  if (!options.tune) return;
  const worldSize = options.gpus > 1 ? options.gpus : null;
  const plan = await recognise(command, { cwd: options.cwd, env, preset: options.preset, worldSize });
  await askInterpreter(plan, options.cwd, env);
}
