import { parseSize } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import type { JobOptions } from '../../contract/options.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { Store } from '../../store/index.js';
import { digest, recognise } from '../../worker/command/index.js';

/** The latest verified configuration for this command, or of this name, that suits the options; null: there is none. */
export async function recordedFor(
  store: Store,
  command: string[],
  options: JobOptions,
): Promise<Recommendation | null> {
  const found =
    options.name === null ? await store.recommendations.list() : await store.recommendations.find(options.name);
  const latest = found
    .filter((one) => one.status === 'verified' && suits(one, options))
    .sort((a, b) => Date.parse(b.verified_at) - Date.parse(a.verified_at));
  if (options.name !== null || latest.length === 0) return latest[0] ?? null;
  const plan = await recognise(command, { cwd: options.cwd, env: process.env, preset: 'auto' }).catch(() => null);
  const own = plan === null ? null : digest(plan);
  return latest.find((one) => one.command_digest === own) ?? null;
}

/** `gpus` 1 is also what nobody asked for. */
function suits(found: Recommendation, { device, gpus, budget }: JobOptions): boolean {
  const onHost = isHost(found.key.split(':')[1]);
  if (device !== null && isHost(device) !== onHost) return false;
  // a percentage is of a device that may not be here
  if (budget !== null && !budget.trim().endsWith('%') && parseSize(budget) !== found.budget_bytes) return false;
  return gpus === 1 || found.world_size === gpus;
}
