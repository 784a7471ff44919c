import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ROOT } from '../store/home.js';

let dir: string;
let path: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'oomtune-own-log-'));
  path = join(dir, 'daemon.log');
});
afterEach(() => rmSync(dir, { recursive: true }));

/** A process whose stderr is the log, as a daemon's is: writes 11 MiB and a line, looks, and writes another line. */
function write(before = ''): void {
  const script = `
    import { renameSync, writeSync } from 'node:fs';
    import { boundLog } from '${ROOT}/dist/daemon/own-log.js';
    writeSync(2, 'x'.repeat(11 * 1024 * 1024));
    writeSync(2, 'before\\n');
    ${before}
    boundLog('${path}');
    writeSync(2, 'after\\n');`;
  const log = openSync(path, 'a', 0o600);
  execFileSync(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'ignore', log] });
  closeSync(log);
}

test('the log of a daemon that runs is begun anew at 10 MiB, and what it said before is kept once', () => {
  write();
  expect(readFileSync(path, 'utf8')).toBe('after\n');
  expect(readFileSync(`${path}.1`, 'utf8').endsWith('xbefore\n')).toBe(true);
  expect(statSync(`${path}.1`).mode & 0o777).toBe(0o600);
});

test('a file of the user’s that stderr goes to is left as it is', () => {
  write(`renameSync('${path}', '${path}.mine');`);
  expect(statSync(`${path}.mine`).size).toBeGreaterThan(11 * 1024 * 1024);
});
