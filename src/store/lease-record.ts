import type { LeaseRecord } from '../contract/state.js';
import { leaseText } from '../contract/state.js';

/** A lease as Redis has it; null for what cannot be read, which the next script that meets it sets aside. */
export function readLease(owner: string, text: string): LeaseRecord | null {
  try {
    const { supervisors, beside, bytes, ...record } = leaseText.parse(JSON.parse(text));
    // Lua writes an empty list as {}
    const lists = {
      supervisors: Array.isArray(supervisors) ? supervisors : [],
      beside: Array.isArray(beside) ? beside : [],
    };
    return { ...record, ...lists, owner, bytes: bytes ?? null, text };
  } catch {
    return null;
  }
}
