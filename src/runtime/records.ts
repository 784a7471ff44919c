import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { z } from 'zod';
import { writeDurably } from '../common/durable-file.js';
import { readRegular } from '../common/regular-file.js';
import { type Exit, exitRecord, supervisorRecord } from '../contract/launch.js';

/** Of a record: the job can write into its launch folder. */
const MOST_BYTES = 64 * 1024;
/** `torn`: it is there, and holds nothing that can be read (zeros after a power cut, the half of it): what it said is not known. */
type Read<T> = T | 'torn' | null;

function readRecord<S extends z.ZodType>(file: string, schema: S): Read<z.infer<S>> {
  let text: string;
  try {
    text = readRegular(file, MOST_BYTES);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    if (code === undefined || code === 'ELOOP') return 'torn'; // no file of its size and kind: the job put it there
    throw error;
  }
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return 'torn';
  }
}

export const readSupervisor = (dir: string) => readRecord(join(dir, 'supervisor.json'), supervisorRecord);

function readEnd(file: string): Omit<Exit, 'ledger'> | null {
  const record = readRecord(file, exitRecord);
  if (record === null || record === 'torn') return null;
  const { schema: _, ...exit } = record;
  return exit;
}

/** Null while the launch is under way, and where its end was written in a way that cannot be read. */
export const readExit = (dir: string) => readEnd(join(dir, 'exit.json'));

/**
 * How the job's main process ended, which its supervisor noted before it was killed while others of the tree were left; becomes
 * exit.json. Null: it did not.
 */
export function takeMainExit(dir: string): Omit<Exit, 'ledger'> | null {
  if (readMainExit(dir) === null) return null;
  renameSync(join(dir, 'main.json'), join(dir, 'exit.json'));
  return readExit(dir);
}

/** The same while others of the tree are left. */
export const readMainExit = (dir: string) => readEnd(join(dir, 'main.json'));

/** For a launch whose supervisor is gone: whole or not at all, as the supervisor would have written it. */
export function writeExit(dir: string, exit: Omit<Exit, 'ledger'>): void {
  rmSync(join(dir, 'exit.json.tmp'), { force: true }); // the space that the supervisor had reserved for it
  writeDurably(join(dir, 'exit.json'), `${JSON.stringify({ schema: 1, ...exit })}\n`);
}
