import { randomBytes } from 'node:crypto';
import { jobId } from '../contract/fields.js';

/** Without 0, 1, l and o, because ids are read aloud and typed. */
const ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789';

/** `j-` and eight characters of base32 (40 bits), with a letter first: never all digits, never a colon. */
export function newJobId(): string {
  const bytes = randomBytes(8);
  const characters = [...bytes].map((byte, at) => ALPHABET[at === 0 ? byte % 24 : byte % 32]);
  return `j-${characters.join('')}`;
}

export const isJobId = (text: string): boolean => jobId.safeParse(text).success;
