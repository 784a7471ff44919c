import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';

/**
 * A script of lua/, each one atomic step in Redis. Its first lines say what it is given and what it answers. The folder says
 * which there are; a test holds every name that is called to it.
 */
export type ScriptName = `${'config' | 'host' | 'job' | 'lease' | 'queue' | 'record'}/${string}`;

/** Folders in which `prelude.lua` begins every script. */
const WITH_PRELUDE = new Set(['job', 'lease']);

/** In the bundle, too, the scripts lie beside what reads them. */
const read = (path: string): string => readFileSync(new URL(`./lua/${path}.lua`, import.meta.url), 'utf8');

function textOf(name: ScriptName): string {
  const folder = name.slice(0, name.indexOf('/'));
  return WITH_PRELUDE.has(folder) ? `${read(`${folder}/prelude`)}\n${read(name)}` : read(name);
}

type Command = (keyCount: number, ...keysAndArgs: (string | number)[]) => Promise<unknown>;

/** Runs a script, as a command of the client's that is defined when it is first used: ioredis sends its text only when Redis has not got it. */
export function runScript(redis: Redis, name: ScriptName, keys: string[], args: (string | number)[]): Promise<unknown> {
  const client = redis as unknown as Record<ScriptName, Command | undefined>;
  if (client[name] === undefined) redis.defineCommand(name, { lua: textOf(name) });
  const command = client[name] as Command;
  return command.call(redis, keys.length, ...keys, ...args);
}
