import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { tokenIn, writeDurably } from '../common/durable-file.js';
import { homePath, stateFolder } from '../common/home.js';
import { systemText } from '../common/regular-file.js';
import { readJson } from '../contract/fields.js';
import { isAlive, processOf } from '../store/index.js';

const schema = z.object({
  schema: z.literal(1),
  pid: z.number().int().positive(),
  /** In clock ticks since boot: with the pid it identifies the process. */
  start: z.string(),
  host: z.string(),
  version: z.string(),
  redis: z.string(),
  started_at: z.string(),
  ready: z.boolean(),
  /** Null: none. */
  dashboard: z.string().nullable().default(null),
  /** Why there is no dashboard; null: no fault. */
  dashboard_fault: z.string().nullable().default(null),
});

/** `daemon/daemon.json`: this home's daemon on this host. */
export type DaemonFile = z.infer<typeof schema>;

const folder = (): string => stateFolder('daemon');
/** One for each host, as hosts may share a home. */
const path = (host: string, within = folder()): string => join(within, `daemon-${host.replace(/[^\w.-]/g, '_')}.json`);

export function writeDaemonFile(file: DaemonFile): void {
  writeDurably(path(file.host), `${JSON.stringify(file)}\n`);
}

/** This host's living daemon; null: none. */
export function readDaemonFile(host: string): DaemonFile | null {
  const file = readJson(schema, systemText(path(host)));
  return file !== null && isAlive(file) ? file : null;
}

/** Whether this home's daemon on this host was that process, and has ended without taking back what it said in Redis. */
export function wasKilled(host: string, pid: number): boolean {
  if (processOf(pid) !== null) return false;
  const file = readJson(schema, systemText(path(host, join(homePath(), 'daemon')))); // it may be another user's
  return file !== null && file.pid === pid && !isAlive(file);
}

export function removeDaemonFile(host: string): void {
  rmSync(path(host), { force: true });
}

export const lockPath = (host: string): string => `${path(host)}.lock`;
export const logPath = (): string => join(folder(), 'daemon.log');
/** Tells a daemon that is about to be stopped to end its jobs, too. */
export const killPath = (host: string): string => `${path(host)}.kill`;

/** The lock token of this home, made once: with it BullMQ lets the next daemon continue the jobs of one that crashed. */
export const stableToken = (): string => tokenIn(join(folder(), 'token'), { bytes: 18, least: 20 });
