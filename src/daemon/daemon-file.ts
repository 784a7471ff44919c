import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { tokenIn, writeDurably } from '../common/durable-file.js';
import { stateFolder } from '../common/home.js';
import { systemText } from '../common/regular-file.js';
import { readJson } from '../contract/fields.js';
import { isAlive } from '../store/index.js';

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
const path = (host: string): string => join(folder(), `daemon-${host.replace(/[^\w.-]/g, '_')}.json`);

export function writeDaemonFile(file: DaemonFile): void {
  writeDurably(path(file.host), `${JSON.stringify(file)}\n`);
}

/** This host's living daemon; null: none. */
export function readDaemonFile(host: string): DaemonFile | null {
  const file = readJson(schema, systemText(path(host)));
  return file !== null && isAlive(file) ? file : null;
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
