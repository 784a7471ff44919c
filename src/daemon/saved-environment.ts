import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { stateFolder } from '../common/home.js';

/**
 * The environment that a job was submitted with, kept in a private file of the submitting host: its values never go to
 * Redis. Read when the job is launched there.
 */
export function saveEnvironment(job: string, environment: Record<string, string>): void {
  const path = file(job);
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(environment), { mode: 0o600 });
  renameSync(draft, path);
}

/** Null: it was submitted on another host. */
export function savedEnvironment(job: string): Record<string, string> | null {
  try {
    return z.record(z.string(), z.string()).parse(JSON.parse(readFileSync(file(job), 'utf8')));
  } catch {
    return null;
  }
}

export function forgetEnvironment(job: string): void {
  rmSync(file(job), { force: true });
}

const folders = new Map<string | undefined, string>();

/** The folder is made once for each home: a daemon asks for every job. */
function file(job: string): string {
  const { OOMTUNE_HOME } = process.env;
  const folder = folders.get(OOMTUNE_HOME) ?? stateFolder('daemon', 'environments');
  folders.set(OOMTUNE_HOME, folder);
  return join(folder, `${job}.json`);
}
