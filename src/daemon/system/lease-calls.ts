import { z } from 'zod';
import { OomtuneError } from '../../common/errors.js';
import { recommendation } from '../../contract/recommendation.js';
import { attachedRun, leaseWish } from '../../contract/system.js';
import type { Runtime } from '../../runtime/types.js';
import { fairShare, limitsOf, processOf, type Store } from '../../store/index.js';
import { type Caller, type Calls, call, id } from './calls.js';
import { LeaseDesk } from './lease-desk.js';
import { OwnedRecommendations } from './owned-recommendations.js';
import type { Peer } from './peer.js';
import { noSuchReservation } from './visible.js';

/** Foreground commands of one user at a time, those that wait included. */
const MOST_COMMANDS = 64;
const number = z.number().int();

/** What `run` and `find-batch` need: they run as who calls them, under reservations that the daemon makes for them. */
export function leaseCalls(store: Store, runtime: Runtime): Calls {
  const recommendations = new OwnedRecommendations(store.recommendations);
  const commands = new Map<number, number>();
  const count = (uid: number, by: number): void => {
    const now = (commands.get(uid) ?? 0) + by;
    if (now === 0) commands.delete(uid);
    else commands.set(uid, now);
  };
  const deskOf = ({ held }: Caller, owner: string): LeaseDesk => {
    const desk = held.get(owner);
    if (desk !== undefined) return desk;
    throw noSuchReservation();
  };
  return {
    'leasing.acquire': call([id, leaseWish], async (caller, [owner, wish]) => {
      const { peer, held, signal, note } = caller;
      const identity = processOf(peer.pid);
      if (identity === null) throw noSuchReservation();
      await checkFree(store, owner);
      checkCount(peer, commands.get(peer.uid) ?? 0);
      const desk = new LeaseDesk(runtime, peer.uid, () => count(peer.uid, -1));
      count(peer.uid, 1);
      try {
        const { foreground, ...rest } = wish;
        const more = { owner, signal, onWait: note, user: peer.name, process: identity };
        const granted = await desk.acquire(
          store.leasing,
          { ...rest, priority: 0, lenient: true },
          {
            ...more,
            mostGpus: limitsOf(fairShare(), peer.name).gpus,
            foreground: foreground ?? { verb: 'run', name: '' },
          },
        );
        held.set(owner, desk);
        return granted;
      } catch (error) {
        desk.done();
        throw error;
      }
    }),
    'leasing.attach': call([id, number, attachedRun], (caller, [owner, lease, run]) =>
      deskOf(caller, owner).attach(lease, run),
    ),
    'leasing.resize': call([id, number, leaseWish.shape.bytes], (caller, [owner, lease, bytes]) =>
      deskOf(caller, owner).resize(lease, bytes),
    ),
    'leasing.beside': call([id, number], (caller, [owner, lease]) => deskOf(caller, owner).beside(lease)),
    'leasing.release': call([id, number], async (caller, [owner, lease]) => {
      const desk = deskOf(caller, owner);
      caller.held.delete(owner);
      await desk.release(lease);
      desk.done();
    }),
    'leasing.leave': call(
      [id, number, z.string(), z.array(number).max(100)],
      async (caller, [owner, lease, dir, pids]) => {
        const desk = deskOf(caller, owner);
        caller.held.delete(owner);
        await desk.leave(lease, dir, pids);
        desk.done();
      },
    ),
    'recommendations.put': call([recommendation], ({ peer }, [found]) => recommendations.put(peer, found, null)),
    'recommendations.demote': call([z.string().max(512), number], ({ peer }, [key, knownBad]) =>
      recommendations.demote(peer, key, knownBad, null),
    ),
  };
}

/** An owner's name that is in use would take over what is reserved under it. */
async function checkFree(store: Store, owner: string): Promise<void> {
  const known = (await store.jobs.find(owner)).is !== 'missing';
  if (known || (await store.leasing.list()).some((lease) => lease.owner === owner)) throw noSuchReservation();
}

function checkCount(peer: Peer, commands: number): void {
  if (commands < MOST_COMMANDS) return;
  const why = `${peer.name} has ${commands} commands in the foreground.`;
  throw new OomtuneError('OOMTUNE_NOT_PERMITTED', why, 'Wait until some have ended, or submit what can wait.');
}
