import { stateFolder } from '../common/home.js';
import type { Probe } from '../contract/measurement.js';
import type { Rung } from '../contract/rung.js';
import { isEnded } from './launch/detached.js';
import { launchFolder } from './launch/launch-folder.js';
import { Session } from './launch/session.js';
import type { HookMode } from './launch/session-request.js';
import type { Target } from './target.js';
import type { WorkDeps, WorkRequest } from './types.js';

/** A launch may load data for long, but a search that hangs must end. */
const LAUNCH_SECONDS = 1800;

/**
 * Starts a process of a search on a rung; `probe` null: only to see what the script asks for. The launch is added to
 * `launches` and recorded before it is made. Rejects with the signal's reason when aborted before that.
 */
export async function openLaunch(
  request: WorkRequest,
  deps: WorkDeps,
  target: Target,
  launches: WorkRequest['launches'],
  { mode, rung, expandable, probe }: { mode: HookMode; rung: Rung; expandable: boolean; probe: Probe | null },
): Promise<Session> {
  const { jobId, options, purpose } = request;
  const launch = launches.length + 1;
  // Made before it is recorded: a recorded launch whose folder is missing lost it, and may have run.
  const dir = stateFolder('runs', jobId, launchFolder(request.epoch, launch));
  const config = probe === null ? null : target.configOf(probe);
  launches.push({ launch, dir, purpose: 'search', config });
  await deps.persist({ launches });
  const first = target.configOf({ rung, expandable_segments: expandable, micro_batch: 1, accumulation: 1 });
  const filled = await target.fill(config ?? first, dir, launch);
  deps.progress({
    type: 'launch',
    launch,
    rung: { ...rung, ...(expandable ? { expandable_segments: true } : {}) },
    why: probe?.why ?? 'to see what the script asks for',
  });
  deps.signal.throwIfAborted();
  return Session.open(
    deps.runtime,
    {
      jobId,
      launch,
      dir,
      argv: filled.argv,
      cwd: options.cwd,
      env: filled.env,
      devices: target.devices.map((device) => device.id),
      budgetBytes: target.limitBytes,
      timeoutSeconds: options.timeoutSeconds ?? LAUNCH_SECONDS,
      graceSeconds: 5,
      output: 'log',
      tied: purpose !== 'submit',
      givenUp: () => isEnded(deps.signal),
      mode,
      steps: options.steps,
      hookKnobs: mode === 'measure' ? target.hookKnobs() : [],
    },
    deps.log,
    { onRemark: (kind, text) => kind === 'warn' && deps.progress({ type: 'note', text }) },
  );
}
