import { hash } from 'node:crypto';
import { delimiter, join } from 'node:path';
import { homePath, PACKAGE_ROOT } from '../../common/home.js';
import { socketPath } from '../../common/private-folder.js';
import type { Probe } from '../../contract/measurement.js';
import type { LaunchSpec } from '../../runtime/types.js';

/**
 * The hook's part in a launch. `probe`: runs the sizes that we ask for. `measure`: argv has the size, the hook measures.
 * `apply`: applies what argv cannot carry, and reports. `none`: no hook.
 */
export type HookMode = 'probe' | 'measure' | 'apply' | 'none';

/** How a launch is hooked, handed on whole from whoever decides it to `hookEnvironment`. What is left out does not apply. */
export interface Hooking {
  mode: HookMode;
  steps: number;
  /** Knobs that the hook itself has to apply (`apply` and `measure`). */
  knobs?: string[];
  /** Fresh processes may be forks; a watched job leaves a spare. */
  forks?: boolean;
  /** The first steps of a job that runs as it stands are measured. */
  watched?: boolean;
  /** It is cut short, to see what its evaluation, generation and saving take. */
  rehearses?: boolean;
  /** A loop without a DataLoader begins with its first call of the model, also where the script's files speak of a loader. */
  atCall?: boolean;
  /** With a loader's batch size the script's variables are set that hold it. */
  setsVariables?: boolean;
  /** So many loops over loaders, the first ones, train nothing. */
  skippedLoops?: number;
  /** What argv has only foretells the limit: cuDNN need not try all of its algorithms for it. */
  foretells?: boolean;
  /** The script trains on a card that is not there, and the hook writes into the launch's folder what its steps allocate. */
  estimate?: boolean;
}

/**
 * Whether a size only foretells the limit, in a process that is to run others: then cuDNN need not try all of its algorithms for it. Where the
 * command's words have it (`byWords`) only the smallest does: any other may be the answer.
 */
export function foretells({ purpose, fresh, knob }: Probe, byWords: boolean): boolean {
  return !fresh && !knob && (purpose === 'floor' || (purpose === 'climb' && !byWords));
}

/** Each variable is 1 where its wish applies; the hook heeds it in the modes that it is for. */
const WISHES = {
  forks: 'OOMTUNE_FORK',
  watched: 'OOMTUNE_WATCH',
  rehearses: 'OOMTUNE_REHEARSE',
  atCall: 'OOMTUNE_AT_CALL',
  setsVariables: 'OOMTUNE_SET_VARIABLES',
  foretells: 'OOMTUNE_FORETELLS',
} as const satisfies Partial<Record<keyof Hooking, string>>;

/** For a fork whose words have another size than those of its launch. */
export function foretellingEnvironment(probe: Probe): Record<string, string> {
  return { [WISHES.foretells]: foretells(probe, true) ? '1' : '' };
}

/** `env`: with the knobs, without the hook's variables. */
export interface SessionRequest extends LaunchSpec {
  hook: Hooking;
}

/** The variables that load the hook; the inject folder comes first, so that Python finds its sitecustomize. */
export function hookEnvironment({ hook, env, dir }: SessionRequest, socket: string): Record<string, string> {
  const path = [join(PACKAGE_ROOT, 'python', 'inject'), join(PACKAGE_ROOT, 'python')];
  if (env.PYTHONPATH) path.push(env.PYTHONPATH);
  const wishes = Object.entries(WISHES).filter(([wish]) => hook[wish as keyof typeof WISHES]);
  return {
    PYTHONPATH: path.join(delimiter),
    OOMTUNE_HOOK: hook.mode,
    OOMTUNE_HOOK_SOCKET: socket,
    OOMTUNE_HOOK_KNOBS: (hook.knobs ?? []).join(','),
    OOMTUNE_STEPS: String(hook.steps),
    ...Object.fromEntries(wishes.map(([, name]) => [name, '1'])),
    ...(hook.skippedLoops ? { OOMTUNE_SKIP_LOOPS: String(hook.skippedLoops) } : {}),
    ...(hook.estimate ? { OOMTUNE_ESTIMATE: dir } : {}),
  };
}

export const hookSocketPath = (dir: string): string =>
  socketPath(homePath(), join(dir, 'hook.sock'), `${hash('sha256', dir).slice(0, 16)}.sock`);
