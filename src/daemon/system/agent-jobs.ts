import { join } from 'node:path';
import { z } from 'zod';
import { jobId } from '../../contract/fields.js';
import { recommendation } from '../../contract/recommendation.js';
import { agentPatch, attachedRun, leaseWish } from '../../contract/system.js';
import type { Runtime } from '../../runtime/types.js';
import type { Store, StoredJob } from '../../store/index.js';
import type { HandedDeps } from '../hands.js';
import { type Calls, call, notOffered } from './calls.js';
import { LeaseDesk } from './lease-desk.js';
import { MOST_ASKED, ownedEnvironments } from './owned-environments.js';
import { OwnedRecommendations } from './owned-recommendations.js';

interface AgentJob {
  uid: number;
  job: StoredJob;
  deps: HandedDeps;
  desk: LeaseDesk;
}

const number = z.number().int();

/** What agents ask for the jobs that they were given, and for no other. They are processes of their users, who can make them say anything. */
export class AgentJobs {
  readonly #jobs = new Map<string, AgentJob>();

  constructor(private readonly parts: { store: Store; runtime: Runtime; runsOf: (uid: number) => string }) {}

  /** From now on the user's agent may ask for this job. */
  begin(uid: number, job: StoredJob, deps: HandedDeps): { end: (goesOn: boolean) => Promise<void> } {
    const desk = new LeaseDesk(this.parts.runtime, uid);
    const begun = { uid, job, deps, desk };
    this.#jobs.set(job.job, begun);
    return {
      end: async (goesOn) => {
        if (this.#jobs.get(job.job) === begun) this.#jobs.delete(job.job);
        await (goesOn ? desk.leaveAll() : desk.releaseAll());
      },
    };
  }

  async answer(
    uid: number,
    job: string,
    name: string,
    args: unknown[],
    { signal, note }: { signal: AbortSignal; note: (value: unknown) => void },
  ): Promise<unknown> {
    if (name === 'jobs.liveIds') return this.parts.store.jobs.liveIds();
    if (name === 'jobs.environments')
      return ownedEnvironments(this.parts.store, uid, z.array(jobId).max(MOST_ASKED).parse(args[0]));
    const found = this.#jobs.get(job);
    if (found === undefined || found.uid !== uid) throw notOffered(`${name} of ${job}`);
    const calls = this.#callsOf(found, signal, note);
    const one = Object.hasOwn(calls, name) ? calls[name] : undefined;
    if (one === undefined) throw notOffered(name);
    return one.run(undefined as never, one.args.parse(args) as never[]);
  }

  #callsOf({ uid, job, deps, desk }: AgentJob, signal: AbortSignal, note: (value: unknown) => void): Calls {
    const owner = { uid, name: job.owner ?? String(uid) };
    const owned = async () => new OwnedRecommendations((await deps.records()).recommendations); // which wait where Redis refuses
    const below = join(this.parts.runsOf(uid), job.job, '/');
    return {
      persist: call([agentPatch], async (_, [patch]) => {
        if (patch.launches?.some(({ dir }) => !dir.startsWith(below) || dir.includes('/../')))
          throw notOffered('a launch elsewhere');
        await deps.persist(patch);
      }),
      'recommendations.get': call([z.string().max(512)], async (_, [key]) =>
        (await deps.records()).recommendations.get(key),
      ),
      'recommendations.put': call([recommendation], async (_, [found]) => {
        const kept = await (await owned()).put(owner, found, job.job);
        if (kept !== null) deps.progress({ type: 'note', text: `${found.key} was recorded by ${kept}, and is kept` });
      }),
      'recommendations.demote': call([z.string().max(512), number], async (_, [key, knownBad]) =>
        (await owned()).demote(owner, key, knownBad, job.job),
      ),
      'leasing.acquire': call([leaseWish], async (_, [wish]) => {
        const { leasing } = await deps.records();
        const { priority } = job.options;
        const asked = { ...wish, foreground: null, priority };
        return eitherSignal(signal, deps.signal, (both) =>
          desk.acquire(leasing, asked, { owner: job.job, signal: both, onWait: note }),
        );
      }),
      'leasing.attach': call([number, attachedRun], (_, [lease, run]) => desk.attach(lease, run)),
      'leasing.resize': call([number, leaseWish.shape.bytes], (_, [lease, bytes]) => desk.resize(lease, bytes)),
      'leasing.beside': call([number], (_, [lease]) => desk.beside(lease)),
      'leasing.release': call([number], (_, [lease]) => desk.release(lease)),
      'leasing.leave': call([number, z.string(), z.array(number).max(100)], (_, [lease, dir, pids]) =>
        desk.leave(lease, dir, pids),
      ),
    };
  }
}

/** A signal of `AbortSignal.any` that only a listener refers to is collected as garbage, and never aborts. */
async function eitherSignal<T>(
  one: AbortSignal,
  other: AbortSignal,
  work: (both: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const onOne = (): void => controller.abort(one.reason);
  const onOther = (): void => controller.abort(other.reason);
  one.addEventListener('abort', onOne, { once: true });
  other.addEventListener('abort', onOther, { once: true });
  if (other.aborted) onOther();
  else if (one.aborted) onOne();
  try {
    return await work(controller.signal);
  } finally {
    one.removeEventListener('abort', onOne);
    other.removeEventListener('abort', onOther);
  }
}
