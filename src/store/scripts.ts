import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import { mayBe } from './keys.js';
import { isWrongType } from './replies.js';

/** A script of lua/, each one atomic step. Its first lines say what it takes and answers. A test checks the names in use. */
export type ScriptName = `${'config' | 'host' | 'job' | 'lease' | 'queue' | 'record'}/${string}`;

/** Folders in which `prelude.lua` begins every script. */
const WITH_PRELUDE = new Set(['job', 'lease']);

/** The scripts lie beside this module, in the bundle as well. */
const read = (path: string): string => readFileSync(new URL(`./lua/${path}.lua`, import.meta.url), 'utf8');

function textOf(name: ScriptName): string {
  const folder = name.slice(0, name.indexOf('/'));
  return WITH_PRELUDE.has(folder) ? `${read(`${folder}/prelude`)}\n${read(name)}` : read(name);
}

type Command = (keyCount: number, ...keysAndArgs: (string | number)[]) => Promise<unknown>;

/** Runs a script as a client's command, defined on first use; ioredis sends its text only if Redis lacks it. */
export function runScript(redis: Redis, name: ScriptName, keys: string[], args: (string | number)[]): Promise<unknown> {
  const client = redis as unknown as Record<ScriptName, Command | undefined>;
  if (client[name] === undefined) redis.defineCommand(name, { lua: textOf(name) });
  const command = client[name] as Command;
  return command.call(redis, keys.length, ...keys, ...args).catch(async (error: unknown) => {
    throw isWrongType(error) ? await withWrongKeys(redis, error, keys) : error;
  });
}

/** A script is not told which of its keys is of another type: the error learns it, where Redis says so. */
async function withWrongKeys(redis: Redis, error: Error, keys: string[]): Promise<Error> {
  const types = await Promise.all(keys.map((key) => redis.type(key))).catch(() => null);
  const wrongKeys = keys.filter((key, at) => types !== null && !mayBe(key, types[at] ?? 'none'));
  return wrongKeys.length === 0 ? error : Object.assign(error, { wrongKeys });
}
