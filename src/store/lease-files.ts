import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeWhole } from '../common/durable-file.js';
import { stateFolder } from '../common/home.js';
import { systemText } from '../common/regular-file.js';
import { readJson } from '../contract/fields.js';
import { type LeasePromise, leasePromise } from '../contract/state.js';
import { hostName, isAlive, pidScope } from './process-identity.js';

const schema = z.object({ schema: z.literal(1), store: z.string(), promise: leasePromise });

/** This home's leases, in files (`leases/<owner>.json`) that each request brings along, should Redis have lost them. */
export class LeaseFiles {
  /** `store`: which Redis; a home may serve several. */
  constructor(private readonly store: string) {}

  write(promise: LeasePromise): void {
    const path = this.#path(promise.owner);
    try {
      writeWhole(path, JSON.stringify({ schema: 1, store: this.store, promise }));
    } catch (error) {
      // The lease holds nevertheless; it only cannot be restored if Redis loses its data
      const why = error instanceof Error ? error.message : String(error);
      void import('../common/log.js').then(({ createLog }) =>
        createLog('store').warn({ path, why }, 'a lease could not be written'),
      );
    }
  }

  /** Takes away what was promised under this instance; what a later process of the owner wrote stays. */
  remove({ owner, instance }: Pick<LeasePromise, 'owner' | 'instance'>): void {
    if (this.has({ owner, instance })) rmSync(this.#path(owner), { force: true });
  }

  has({ owner, instance }: Pick<LeasePromise, 'owner' | 'instance'>): boolean {
    return this.#read(this.#path(owner))?.instance === instance;
  }

  /** Those whose owner lives, or a supervisor of theirs. Files of others are removed. */
  living(): LeasePromise[] {
    const folder = stateFolder('leases');
    return readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .flatMap((name) => {
        const promise = this.#read(join(folder, name));
        if (promise === null || promise.host !== hostName()) return [];
        if (promise.boot === pidScope() && [promise.process, ...promise.supervisors].some(isAlive)) return [promise];
        rmSync(join(folder, name), { force: true });
        return [];
      });
  }

  #path(owner: string): string {
    return join(stateFolder('leases'), `${owner.replace(/[^\w.-]/g, '_')}.json`);
  }

  #read(path: string): LeasePromise | null {
    const read = readJson(schema, systemText(path)); // gone, or cut off: the lease itself stands in Redis
    return read?.store === this.store ? read.promise : null;
  }
}
