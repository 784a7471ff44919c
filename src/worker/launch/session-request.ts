/**
 * How the hook takes part in a launch. `probe`: it drives the loop through sizes that we ask for. `measure`: argv carries
 * the size, it counts steps and measures. `apply`: it applies what argv cannot carry and reports. `none`: no hook.
 */
export type HookMode = 'probe' | 'measure' | 'apply' | 'none';

export interface SessionRequest {
  jobId: string;
  launch: number;
  dir: string;
  argv: string[];
  cwd: string;
  /** The job's environment with the knobs in it, without the hook's part. */
  env: Record<string, string>;
  devices: string[];
  budgetBytes: number | null;
  timeoutSeconds: number | null;
  graceSeconds: number;
  output: 'log' | 'inherit';
  /** See LaunchSpec. */
  tied?: boolean;
  givenUp?: () => boolean;
  mode: HookMode;
  /** Fresh processes may be forks of the one that is started. */
  forks: boolean;
  steps: number;
  /** Knobs that the hook itself has to apply (`apply` and `measure`). */
  hookKnobs: string[];
}
