import { stateFolder } from '../common/home.js';
import type { Step } from '../contract/hook.js';
import type { Config, Cut } from '../contract/rung.js';
import { isEnded } from './launch/detached.js';
import { launchFolder } from './launch/launch-folder.js';
import { Session } from './launch/session.js';
import type { Target } from './target.js';
import type { WorkDeps, WorkRequest } from './types.js';

interface Launch {
  config: Config | null;
  resume: boolean;
  onStep: (step: Step) => void;
  onCut: (cut: Cut) => void;
}

/**
 * Starts the job itself; `config` null: as it stands. The launch is added to `launches` and recorded before it is made.
 * Rejects with the signal's reason when aborted before that.
 */
export async function openJob(
  request: WorkRequest,
  deps: WorkDeps,
  target: Target,
  launches: WorkRequest['launches'],
  { config, resume, onStep, onCut }: Launch,
): Promise<Session> {
  const { jobId, options, foreground, purpose } = request;
  const launch = launches.length + 1;
  // Made before it is recorded: a recorded launch whose folder is missing lost it, and may have run.
  const dir = stateFolder('runs', jobId, launchFolder(request.epoch, launch));
  launches.push({ launch, dir, purpose: 'run', config });
  await deps.persist({ launches });
  const filled = await target.fill(config, dir, launch, resume);
  deps.signal.throwIfAborted();
  const again = resume && options.resumeArg !== null ? [options.resumeArg] : [];
  return Session.open(
    deps.runtime,
    {
      jobId,
      launch,
      dir,
      argv: [...filled.argv, ...again],
      cwd: options.cwd,
      env: filled.env,
      devices: target.devices.map((device) => device.id),
      budgetBytes: target.limitBytes,
      timeoutSeconds: least(options.timeoutSeconds, deps.secondsLeft?.() ?? null),
      graceSeconds: 10,
      output: foreground ? 'inherit' : 'log',
      tied: purpose !== 'submit',
      givenUp: () => isEnded(deps.signal),
      mode: options.tune && target.hook ? 'apply' : 'none',
      steps: options.steps,
      hookKnobs: config === null ? [] : target.hookKnobs(config),
    },
    deps.log,
    { onStep, onCut, onRemark: (kind, text) => kind === 'warn' && deps.progress({ type: 'note', text }) },
  );
}

const least = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b);
