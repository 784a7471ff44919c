import { aborted } from '../../common/within.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Rehearsed as Message } from '../../contract/hook.js';
import type { PhasePeak, Rehearsal } from '../../contract/rehearsal.js';
import type { Config } from '../../contract/rung.js';
import { halved, stepDown } from '../../tuner/index.js';
import { launchRehearsal, type Owner } from '../launch/launch.js';
import type { Session } from '../launch/session.js';
import { diagnoseSession } from '../search/observe.js';
import { failureOf, notesOf, outOfMemory, type Rehearsed, reported, smallerHelps } from './verdict.js';

/** Smaller sizes that are tried, where they help. */
const MOST_SMALLER = 3;

/** From the end of the first rank's rehearsal to the end of the launch. */
const REST_MILLISECONDS = 10_000;

/** What rehearsals came to. */
export interface RehearsalOutcome {
  /** Which was rehearsed last; null: as it stands. */
  config: Config | null;
  rehearsal: Rehearsal | null;
  notes: string[];
  /** Why the job would not come to its end; null: nothing shows that. */
  failure: Diagnosis | null;
}

/**
 * Runs the job once, cut short by the hook, to see whether its evaluation, generation and saving fit beside its training. Steps down
 * where a smaller training batch helps. Rejects with the signal's reason.
 */
export async function rehearse(owner: Owner, wanted: Config | null): Promise<RehearsalOutcome> {
  const { target, request, deps } = owner;
  if (!target.hook) {
    const note =
      'Nothing is rehearsed: oomtune’s hook takes no part in the command, so that its evaluation cannot be seen.';
    return { config: wanted, rehearsal: null, notes: [note], failure: null };
  }
  const budget = target.memory.roomBytes;
  const follows = target.carrier('micro_batch') !== 'hook';
  const free = (request.purpose === 'find-batch' && request.options.effectiveBatch === null) || target.keepsUnknown;
  let config = wanted;
  for (let smaller = 0; ; smaller += 1) {
    const rehearsed = await once(owner, config);
    const rehearsal = reported(rehearsed, budget);
    await deps.persist({ rehearsal });
    if (outOfMemory(rehearsed, budget) === null) return { config, rehearsal, notes: notesOf(rehearsed), failure: null };
    const next =
      config !== null && smaller < MOST_SMALLER && smallerHelps(rehearsed, config, { follows, free, budget })
        ? (free ? halved : stepDown)(config, request.options)
        : null;
    const failure = failureOf(rehearsed, budget);
    if (next === null) return { config, rehearsal, notes: [], failure };
    const text = `${failure.cause} A smaller training batch helps: ${next.micro_batch} is tried.`;
    deps.progress({ type: 'note', text });
    config = next;
  }
}

async function once(owner: Owner, config: Config | null): Promise<Rehearsed> {
  const { deps, target } = owner;
  let overAt: NodeJS.Timeout | null = null;
  let session: Session | null = null;
  const onRehearsed = ({ over }: Message): void => {
    // Other ranks would wait for the one that is gone.
    if (over) overAt ??= setTimeout(() => session?.run.end('cancel'), REST_MILLISECONDS);
  };
  session = await launchRehearsal(owner, config, { onRehearsed });
  const first = await Promise.race([session.ended(), session.unnoticed, aborted(deps.signal)]);
  if (first === undefined) session.run.end('cancel');
  const exit = await session.ended();
  if (overAt !== null) clearTimeout(overAt);
  deps.signal.throwIfAborted();
  const said = [...session.rehearsed.values()];
  const failed = session.exception !== null || !said.some(({ over }) => over);
  const diagnosis = failed
    ? await diagnoseSession(session, exit, target.kind, await target.memory.surroundings())
    : null;
  const last = said.find((one) => one.phase !== 'train') ?? said[0];
  return {
    phases: worst(said),
    steps: Math.max(0, ...said.map(({ steps }) => steps)),
    phase: last?.phase ?? 'train',
    cut: session.cut?.cut ?? null,
    diagnosis,
  };
}

/** Each phase of the rank that it took most of. */
function worst(said: readonly Message[]): PhasePeak[] {
  const most = ({ whole_bytes, peak_bytes }: PhasePeak): number => whole_bytes ?? peak_bytes ?? 0;
  const phases = new Map<string, PhasePeak>();
  for (const peak of said.flatMap((one) => one.phases)) {
    const before = phases.get(peak.phase);
    if (before === undefined || most(peak) > most(before)) phases.set(peak.phase, peak);
  }
  return [...phases.values()];
}
