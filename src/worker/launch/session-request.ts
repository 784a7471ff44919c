import { delimiter, join } from 'node:path';
import { homePath, PACKAGE_ROOT } from '../../common/home.js';
import { socketPath } from '../../common/private-folder.js';
import { sha256 } from '../../common/sha256.js';
import type { LaunchSpec } from '../../runtime/types.js';

/**
 * How the hook takes part in a launch. `probe`: it drives the loop through sizes that we ask for. `measure`: argv carries
 * the size, it counts steps and measures. `apply`: it applies what argv cannot carry and reports. `none`: no hook.
 */
export type HookMode = 'probe' | 'measure' | 'apply' | 'none';

/** `env`: with the knobs in it, without the hook's part. */
export interface SessionRequest extends LaunchSpec {
  mode: HookMode;
  /** Fresh processes may be forks of the one that is started. */
  forks: boolean;
  steps: number;
  /** Knobs that the hook itself has to apply (`apply` and `measure`). */
  hookKnobs: string[];
}

/** The variables that switch the hook on; the inject folder goes first so that Python finds its sitecustomize. */
export function hookEnvironment(request: SessionRequest, socket: string): Record<string, string> {
  const path = [join(PACKAGE_ROOT, 'python', 'inject'), join(PACKAGE_ROOT, 'python')];
  if (request.env.PYTHONPATH) path.push(request.env.PYTHONPATH);
  return {
    PYTHONPATH: path.join(delimiter),
    OOMTUNE_HOOK: request.mode,
    OOMTUNE_HOOK_SOCKET: socket,
    OOMTUNE_HOOK_KNOBS: request.hookKnobs.join(','),
    OOMTUNE_STEPS: String(request.steps),
    ...(request.forks && request.mode === 'probe' ? { OOMTUNE_FORK: '1' } : {}),
  };
}

export const hookSocketPath = (dir: string): string =>
  socketPath(homePath(), join(dir, 'hook.sock'), `${sha256(dir).slice(0, 16)}.sock`);
