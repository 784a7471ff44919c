import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Carrier } from '../command/types.js';
import { ignored } from './undriveable.js';

interface Ran {
  /** Samples of a step in the command. */
  asked: number;
  /** Samples of the loop's batches; null: not seen. */
  ran: number | null;
  /** The peak; null: not measured. */
  bytes: number | null;
}

/** Sizes so far apart need different memory, unless the flag is ignored. */
const FAR = 8;
const SAME = 1.02;

/** Compares launches at far sizes: if neither batch nor memory changes, the script ignores the flag. */
export class IgnoredFlag {
  readonly #before: Ran[] = [];

  /** `carrier`: who brings the size to the script. */
  constructor(private readonly carrier: Carrier) {}

  /** Null: nothing shows that the flag is ignored. */
  verdict(now: Ran): Diagnosis | null {
    const alike = this.#before.find((before) => isUnmoved(before, now));
    this.#before.push(now);
    return alike === undefined || now.ran === null ? null : ignored(alike.asked, now.asked, now.ran, this.carrier);
  }
}

function isUnmoved(before: Ran, now: Ran): boolean {
  const far = Math.max(before.asked, now.asked) >= FAR * Math.min(before.asked, now.asked);
  if (!far || before.ran !== now.ran || before.bytes === null || now.bytes === null) return false;
  return Math.max(before.bytes, now.bytes) <= SAME * Math.min(before.bytes, now.bytes);
}
