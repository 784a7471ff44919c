import { appendFileSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import type * as promises from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { LogTail } from '../../src/daemon/log-tail.js';
import type { LogTails } from '../../src/store/index.js';
import { until } from '../store/home.js';

/** What the supervisor does just before the log is opened, and just after. */
const meanwhile = vi.hoisted(() => ({ before: () => {}, after: () => {} }));
vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof promises>();
  const open: typeof real.open = async (...args) => {
    meanwhile.before();
    const handle = await real.open(...args);
    meanwhile.after();
    return handle;
  };
  return { ...real, open };
});

/** A stand-in for the tails in Redis: what was added, in its order. */
class Added {
  text = '';
  read = async () => [];
  append = async (_job: string, _launch: number, _offset: number, data: Buffer) => {
    this.text = (this.text + data.toString('latin1')).slice(-4096);
  };
}

let dir: string;
let log: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'oomtune-tail-'));
  log = join(dir, 'log');
});
afterEach(() => {
  meanwhile.before = meanwhile.after = () => {};
  rmSync(dir, { recursive: true });
});

/** As the supervisor does it. */
function rotate(text: string): number {
  renameSync(log, `${log}.1`);
  writeFileSync(log, text);
  return statSync(log).ino;
}

const follow = (added: Added) => {
  const parts = { logs: added as unknown as LogTails, log: createLog('daemon', 'warn') };
  return new LogTail(parts, { job: 'j-rotated1', launch: 1, dir }, false);
};

test('the end of a log is copied however often it is rotated', async () => {
  writeFileSync(log, '');
  const added = new Added();
  const tail = follow(added);
  for (const end = Date.now() + 600; Date.now() < end; await setImmediate()) {
    appendFileSync(log, 'x'.repeat(100));
    rotate('y');
  }
  appendFileSync(log, 'END');
  await tail.close();
  expect(added.text.slice(-4)).toBe('yEND');
});

test('a file that has the inode of an earlier one is not taken for it', async () => {
  writeFileSync(log, '1');
  const added = new Added();
  const tail = follow(added);
  await until(() => added.text === '1');
  const inode = rotate('2');
  let turn = 0;
  meanwhile.before = () => {
    if (turn++ === 0) rotate('3');
  };
  meanwhile.after = () => {
    if (turn !== 1) return;
    // File systems give the number of a file that is gone to the next: made sure of, as far as it can be.
    for (let n = 0; n < 64 && rotate('4') !== inode; n += 1) writeFileSync(join(dir, `other-${n}`), '');
  };
  await until(() => added.text.includes('3'));
  appendFileSync(log, 'END');
  await tail.close();
  expect(added.text.slice(-4)).toBe('4END');
});
