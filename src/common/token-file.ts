import { randomBytes } from 'node:crypto';
import { chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

/** The secret word in a file of 0600, made on first use, by whoever comes first. `bytes`: how much chance it is made of; `least`: characters it has to have. */
export function tokenIn(path: string, { bytes, least }: { bytes: number; least: number }): string {
  for (;;) {
    try {
      const token = readFileSync(path, 'utf8').trim();
      if (/^[\w-]{1,100}$/.test(token) && token.length >= least) {
        chmodSync(path, 0o600);
        return token;
      }
      rmSync(path, { force: true }); // cut off by a full disk
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    try {
      const made = randomBytes(bytes).toString('base64url');
      writeFileSync(path, made, { mode: 0o600, flag: 'wx', flush: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}
