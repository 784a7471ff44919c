import type { Job } from 'bullmq';
import type { Ticket } from '../contract/state.js';
import { fairShare, limitsOf, retry, type Store, type StoredJob } from '../store/index.js';
import type { Leasing } from '../worker/index.js';
import { acrossOf } from './routing.js';
import { avoided } from './sharing/avoided.js';

/** The job goes back to its queue; nothing of it has started. */
export class PutBack extends Error {}

interface LeaseWaitParts {
  store: Store;
  record: StoredJob;
  /** Its queue entry, which knows since when it waits. */
  ticket: () => Job<Ticket> | null;
  /** Called when it begins to wait or is passed over, as others may find devices. */
  onWait: () => void;
  onRefused: (error: Error) => void;
}

/** A job's leases; knows whether the job waits for one, as only then it can be put back. */
export class LeaseWait implements Leasing {
  /** Since when it waits (ms); null: it does not. */
  since: number | null = null;
  /** Suitable devices are reserved for others, so jobs behind it may go first if they end in time. */
  passedOver = false;

  constructor(private readonly parts: LeaseWaitParts) {}

  acquire: Leasing['acquire'] = async (request) => {
    const { store, record, ticket, onWait, onRefused } = this.parts;
    this.since = Date.now();
    onWait();
    const acquire = async () => {
      const lastsSeconds = request.lastsSeconds ?? (await store.durations.expected(record));
      const waitingSince = ticket()?.timestamp;
      const onPassedOver = (passed: boolean): void => {
        if (passed && !this.passedOver) onWait();
        this.passedOver = passed;
      };
      const avoid = record.options.shareAuto ? () => avoided(store, record, request.devices) : undefined;
      const more = avoid === undefined ? {} : { avoid };
      return store.leasing.acquire({
        ...request,
        ...more,
        user: record.owner,
        across: acrossOf(record.options),
        mostGpus: limitsOf(fairShare(), record.owner).gpus,
        lastsSeconds,
        waitingSince,
        onPassedOver,
      });
    };
    const lease = await retry(acquire, { signal: request.signal, onRefused });
    this.since = null;
    this.passedOver = false;
    // Put back just when it was granted; from now on it cannot be
    if (request.signal.reason instanceof PutBack) {
      await lease.release();
      throw request.signal.reason;
    }
    return lease;
  };
}
