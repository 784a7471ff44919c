import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { z } from 'zod';
import { writeDurably } from '../common/durable-file.js';
import { readRegular } from '../common/regular-file.js';
import { type Exit, exitRecord, supervisorRecord } from '../contract/launch.js';

/** The job can write into its launch folder, so records are bounded. */
const MOST_BYTES = 64 * 1024;
/** `torn`: it is there but unreadable (half of it, or zeros after a power cut). */
type Read<T> = T | 'torn' | null;

function readRecord<S extends z.ZodType>(file: string, schema: S): Read<z.infer<S>> {
  let text: string;
  try {
    text = readRegular(file, MOST_BYTES);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return null;
    // No file of its size and kind (a link, a socket): the job put it there.
    if (code === undefined || code === 'ELOOP' || code === 'ENXIO') return 'torn';
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

/** Null: the launch runs, or its record is unreadable. */
export const readExit = (dir: string) => readEnd(join(dir, 'exit.json'));

/** How the main process ended, if its supervisor noted that before it was killed; becomes exit.json. Null: it did not. */
export function takeMainExit(dir: string): Omit<Exit, 'ledger'> | null {
  if (readMainExit(dir) === null) return null;
  renameSync(join(dir, 'main.json'), join(dir, 'exit.json'));
  return readExit(dir);
}

export const readMainExit = (dir: string) => readEnd(join(dir, 'main.json'));

/** Writes the record that a lost supervisor could not write, whole or not at all. */
export function writeExit(dir: string, exit: Omit<Exit, 'ledger'>): void {
  rmSync(join(dir, 'exit.json.tmp'), { force: true }); // the space that the supervisor had reserved for it
  writeDurably(join(dir, 'exit.json'), `${JSON.stringify({ schema: 1, ...exit })}\n`);
}
