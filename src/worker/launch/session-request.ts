import { hash } from 'node:crypto';
import { delimiter, join } from 'node:path';
import { homePath, PACKAGE_ROOT } from '../../common/home.js';
import { socketPath } from '../../common/private-folder.js';
import type { LaunchSpec } from '../../runtime/types.js';

/**
 * The hook's part in a launch. `probe`: runs the sizes that we ask for. `measure`: argv has the size, the hook measures.
 * `apply`: applies what argv cannot carry, and reports. `none`: no hook.
 */
export type HookMode = 'probe' | 'measure' | 'apply' | 'none';

/** `env`: with the knobs, without the hook's variables. */
export interface SessionRequest extends LaunchSpec {
  mode: HookMode;
  /** Fresh processes may be forks; a watched job leaves a spare. */
  forks: boolean;
  /** A loop without a DataLoader begins with its first call of the model, also where the script's files speak of a loader. */
  atCall?: boolean;
  /** With a loader's batch size the script's variables are set that hold it. */
  setsVariables?: boolean;
  /** The script trains on a card that is not there, and the hook writes into the launch's folder what its steps allocate. */
  estimate?: boolean;
  steps: number;
  /** The first steps of a job that runs as it stands are measured. */
  watched?: boolean;
  /** Knobs that the hook itself has to apply (`apply` and `measure`). */
  hookKnobs: string[];
}

/** The variables that load the hook; the inject folder comes first, so that Python finds its sitecustomize. */
export function hookEnvironment(request: SessionRequest, socket: string): Record<string, string> {
  const path = [join(PACKAGE_ROOT, 'python', 'inject'), join(PACKAGE_ROOT, 'python')];
  if (request.env.PYTHONPATH) path.push(request.env.PYTHONPATH);
  return {
    PYTHONPATH: path.join(delimiter),
    OOMTUNE_HOOK: request.mode,
    OOMTUNE_HOOK_SOCKET: socket,
    OOMTUNE_HOOK_KNOBS: request.hookKnobs.join(','),
    OOMTUNE_STEPS: String(request.steps),
    ...(request.forks && (request.mode === 'probe' || request.watched) ? { OOMTUNE_FORK: '1' } : {}),
    ...(request.watched && request.mode === 'apply' ? { OOMTUNE_WATCH: '1' } : {}),
    ...(request.estimate ? { OOMTUNE_ESTIMATE: request.dir } : {}),
    ...(request.atCall && request.mode === 'probe' ? { OOMTUNE_AT_CALL: '1' } : {}),
    ...(request.setsVariables && request.mode === 'probe' ? { OOMTUNE_SET_VARIABLES: '1' } : {}),
  };
}

export const hookSocketPath = (dir: string): string =>
  socketPath(homePath(), join(dir, 'hook.sock'), `${hash('sha256', dir).slice(0, 16)}.sock`);
