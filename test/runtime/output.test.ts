import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createRuntime } from '../../src/runtime/index.js';
import type { LaunchSpec } from '../../src/runtime/types.js';
import { launchSpec, PYTHON } from './helpers.js';

const START = join(import.meta.dirname, '../fixtures/runtime/start.mjs');

/** A process of its own that launches `spec` with its standard streams handed on, and waits. */
function foreground(spec: LaunchSpec) {
  return spawn(process.execPath, [START, JSON.stringify({ ...spec, output: 'inherit' }), 'wait']);
}

const log = (spec: LaunchSpec) => readFileSync(join(spec.dir, 'log'), 'utf8');

describe('a launch in the foreground', () => {
  test('keeps stdout and stderr apart, and both in the log', async () => {
    const spec = launchSpec(['sh', '-c', 'echo out; echo err >&2; exit 7']);
    const child = foreground(spec);
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
    expect({ out, err }).toEqual({ out: 'out\n', err: 'err\n' });
    expect(child.exitCode ?? (await once(child, 'exit'))[0]).toBe(7);
    expect(log(spec).split('\n').sort()).toEqual(['', 'err', 'out']);
  });

  test('loses nothing of what a slow reader has not read yet', async () => {
    const lines = 300_000;
    const spec = launchSpec([PYTHON, '-c', `for i in range(${lines}): print(i)`]);
    const child = foreground(spec);
    await sleep(500); // the pipe is full by now
    const out = await text(child.stdout);
    expect(out.split('\n').length).toBe(lines + 1);
    expect(out.endsWith(`\n${lines - 1}\n`)).toBe(true);
    expect(log(spec)).toBe(out);
  });

  test('goes on when its reader goes away', async () => {
    const spec = launchSpec([PYTHON, '-c', 'for i in range(200000): print(i)']);
    const child = foreground(spec);
    await once(child.stdout, 'data');
    child.stdout.destroy();
    await once(child, 'exit');
    expect(child.exitCode).toBe(0);
    expect(log(spec).endsWith('\n199999\n')).toBe(true);
  });

  test('ends when it is told to, though its reader does not read', async () => {
    const spec = launchSpec([PYTHON, '-c', 'while True: print("x" * 1000)'], { graceSeconds: 0.2 });
    const child = foreground(spec);
    const reading = once(child.stdout, 'readable'); // begins to fill, and is never emptied
    await reading;
    const run = await createRuntime().adopt(spec.dir);
    run?.end('cancel');
    expect(await run?.wait()).toMatchObject({ ended_by: 'cancel' });
    child.stdout.destroy();
  });

  test('reads what is piped into it', async () => {
    const child = foreground(launchSpec(['wc', '-c']));
    child.stdin.end('12345');
    expect((await text(child.stdout)).trim()).toBe('5');
  });

  test('outlives who started it, and is found by another process', async () => {
    const spec = launchSpec(['sh', '-c', 'echo on; sleep 600']);
    const child = spawn(process.execPath, [START, JSON.stringify(spec)], { stdio: 'ignore' });
    expect((await once(child, 'exit'))[0]).toBe(0);
    const run = await createRuntime().adopt(spec.dir);
    expect(run).not.toBeNull();
    run?.end('cancel');
    expect(await run?.wait()).toMatchObject({ ended_by: 'cancel', signal: 'SIGTERM' });
  });

  test('holds no stream of who started it once the job has ended', async () => {
    const child = foreground(launchSpec(['sh', '-c', 'exec >&- 2>&-; sleep 1']));
    const closed = once(child.stdout, 'close');
    await once(child, 'exit');
    child.stdout.resume();
    await closed;
    expect(child.exitCode).toBe(0);
  });
});
