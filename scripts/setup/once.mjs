import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { say } from './say.mjs';

/** Whether `folder` is there, made once a machine: `make` fills a folder beside it, and returns whether that is whole. */
export function onceAMachine(folder, what, make) {
  if (existsSync(folder)) return true;
  say(`installing ${what} into ${folder}: once a machine`);
  const made = `${folder}.${process.pid}`;
  mkdirSync(made, { recursive: true });
  if (make(made) && !existsSync(folder)) renameSync(made, folder);
  rmSync(made, { recursive: true, force: true });
  return existsSync(folder);
}
