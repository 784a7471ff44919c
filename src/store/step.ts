import { randomBytes } from 'node:crypto';

/** Tells a step that is sent again, as its answer was lost with the connection, from another of its kind. */
export const newStep = (): string => randomBytes(8).toString('hex');
