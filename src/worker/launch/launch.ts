import { graceSeconds } from '../../common/bounds.js';
import { stateFolder } from '../../common/home.js';
import type { Probe } from '../../contract/measurement.js';
import type { Config, Rung } from '../../contract/rung.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { isEnded } from './detached.js';
import type { SessionHooks } from './hook-report.js';
import { tellOwnRanks } from './own-ranks.js';
import { Session } from './session.js';
import { foretells, type Hooking, type SessionRequest } from './session-request.js';
import { Versions } from './versions.js';

/** Loading may take long, but a search that hangs must end. */
export const SEARCH_SECONDS = 1800;
/** Nothing of a search is to be saved. */
const SEARCH_GRACE_SECONDS = 5;

/** The launch's owner; `launches` gets what is begun. */
export interface Owner {
  request: WorkRequest;
  deps: WorkDeps;
  target: Target;
  launches: WorkRequest['launches'];
}

interface SearchLaunch {
  /** But for the knobs that the hook is to apply, which follow from the probe. */
  hook: Hooking;
  rung: Rung;
  expandable: boolean;
  /** Null: only to see the script's own settings. */
  probe: Probe | null;
}

export function launchSearch(owner: Owner, { hook, rung, expandable, probe }: SearchLaunch): Promise<Session> {
  const { target } = owner;
  const config = probe === null ? null : target.configOf(probe);
  const first = target.configOf({ rung, expandable_segments: expandable, micro_batch: 1, accumulation: 1 });
  const knobs = hook.mode === 'measure' ? target.hookKnobs(probe?.knob ? (config ?? first) : undefined) : [];
  return openSearch(
    owner,
    config,
    {},
    {
      filled: config ?? first,
      rung: { ...rung, ...(expandable ? { expandable_segments: true } : {}) },
      why: probe?.why ?? 'to see what the script asks for',
      hook: { ...hook, knobs, foretells: probe !== null && foretells(probe, true) },
    },
  );
}

/** The job as it would run at this configuration (null: as it stands), cut short; nothing that it writes is kept. */
export function launchRehearsal(owner: Owner, config: Config | null, hooks: SessionHooks): Promise<Session> {
  const { request, target } = owner;
  const knobs = config === null ? [] : target.hookKnobs(config);
  return openSearch(owner, config, hooks, {
    filled: config,
    rung: config,
    why: 'to see what evaluation, generation and saving take',
    hook: { mode: 'apply', steps: request.options.steps, knobs, rehearses: true },
  });
}

interface SearchWishes {
  /** What the command's placeholders are filled with. */
  filled: Config | null;
  /** What is told of it, and why it is made. */
  rung: Rung | null;
  why: string;
  hook: SessionRequest['hook'];
}

function openSearch(
  owner: Owner,
  config: Config | null,
  hooks: SessionHooks,
  { filled, rung, why, hook }: SearchWishes,
): Promise<Session> {
  const { request, deps, target } = owner;
  return open(owner, { purpose: 'search', config }, hooks, async (dir, launch) => {
    const { argv, env } = await target.fill(filled, dir, launch);
    deps.progress({ type: 'launch', launch, rung, why });
    const timeoutSeconds = request.options.timeoutSeconds ?? SEARCH_SECONDS;
    return { argv, env, timeoutSeconds, graceSeconds: SEARCH_GRACE_SECONDS, output: 'log', hook };
  });
}

interface JobLaunch {
  /** Null: as it stands. */
  config: Config | null;
  resume: boolean;
  /** Its first steps are measured. */
  watched: boolean;
  hooks: SessionHooks;
  /** Why it is launched once more; null: it is the first. */
  why: string | null;
}

export function launchJob(owner: Owner, { config, resume, watched, hooks, why }: JobLaunch): Promise<Session> {
  const { request, deps, target } = owner;
  const { options, foreground } = request;
  return open(owner, { purpose: 'run', config, ...(why === null ? {} : { why }) }, hooks, async (dir, launch) => {
    const { argv, env } = await target.fill(config, dir, launch, resume);
    return {
      argv: resume && options.resumeArg !== null ? [...argv, options.resumeArg] : argv,
      env,
      timeoutSeconds: least(options.timeoutSeconds, deps.secondsLeft?.() ?? null),
      graceSeconds: graceSeconds(),
      output: foreground ? 'inherit' : 'log',
      hook: {
        mode: options.tune && target.hook ? 'apply' : 'none',
        steps: options.steps,
        knobs: config === null ? [] : target.hookKnobs(config),
        forks: watched && (options.fork ?? true) && target.leavesSpare,
        watched,
      },
    };
  });
}

/** Where launches of a search and of a job differ. */
type Wishes = Pick<SessionRequest, 'argv' | 'env' | 'timeoutSeconds' | 'graceSeconds' | 'output' | 'hook'>;

/** Records the launch, then makes it. Rejects with the signal's reason if aborted before. */
async function open(
  { request, deps, target, launches }: Owner,
  made: Omit<WorkRequest['launches'][number], 'launch' | 'dir'>,
  hooks: SessionHooks,
  wish: (dir: string, launch: number) => Promise<Wishes>,
): Promise<Session> {
  const { jobId, options } = request;
  const launch = launches.length + 1;
  // Made before it is recorded, so a recorded launch without a folder lost it, and may have run.
  const dir = stateFolder('runs', jobId, folderName(request.epoch, launch));
  const { purpose } = made;
  launches.push({ launch, dir, ...made });
  const versions = new Versions(target, deps);
  const budget_bytes = target.memory.packedBytes ?? target.budgetBytes;
  await deps.persist({ launches, budget_bytes, versions: versions.known });
  const isFirstRun = purpose === 'run' && launches.filter((one) => one.purpose === 'run').length === 1;
  const input = isFirstRun ? null : purpose === 'run' ? request.input?.again() : request.input?.file;
  const wishes = await wish(dir, launch);
  deps.signal.throwIfAborted();
  return Session.open(
    deps.runtime,
    {
      jobId,
      launch,
      dir,
      cwd: options.cwd,
      devices: target.devices.map((device) => device.id),
      budgetBytes: target.memory.limitBytes,
      tied: request.purpose !== 'submit',
      ...(request.shell === undefined ? {} : { shell: request.shell }),
      ...(input == null ? {} : { input }),
      givenUp: () => isEnded(deps.signal),
      ...wishes,
    },
    deps.log,
    {
      ...hooks,
      ...remarksTo(deps),
      onHello: (hello) => {
        versions.hear(hello);
        if (options.tune) tellOwnRanks(target, hello, deps);
      },
    },
  );
}

/** Shows what the hook warns of. */
export const remarksTo = ({ progress }: Pick<WorkDeps, 'progress'>): SessionHooks => ({
  onRemark: (kind, text) => kind === 'warn' && progress({ type: 'note', text }),
});

/** The folder of a launch in the job's; each try has its own, as an earlier one may still run on a host that shares this home. */
const folderName = (epoch = 1, launch: number): string => (epoch === 1 ? String(launch) : `${epoch}.${launch}`);

const least = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b);
