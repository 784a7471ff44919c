import { existsSync, mkdtempSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createLog, type Log } from '../../src/common/log.js';
import { type HookEvent, HookServer } from '../../src/worker/launch/hook-server.js';

const hello = (rank: number) => JSON.stringify({ t: 'hello', v: 1, pid: 7, rank, world_size: 2 });
let server: HookServer | null = null;
afterEach(() => server?.close());

async function listen(): Promise<{ path: string; events: HookEvent[] }> {
  const path = join(mkdtempSync(join(tmpdir(), 'oomtune-hook-')), 'hook.sock');
  const events: HookEvent[] = [];
  server = await HookServer.listen(path, createLog('test', 'silent'), (event) => events.push(event));
  return { path, events };
}

describe('the hook’s socket', () => {
  it('is open to this user only', async () => {
    const { path } = await listen();
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('hands on whole lines in order, however they are cut', async () => {
    const { path, events } = await listen();
    const socket = connect(path);
    const text = `${hello(1)}\n{"t":"step","n":3}\n{"t":"save","message":"ä"}\n`;
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += 7) {
      await new Promise((resolve) => socket.write(bytes.subarray(at, at + 7), resolve));
    }
    await expect.poll(() => events.length).toBe(3);
    expect(events.map((event) => ('message' in event ? event.message.t : 'gone'))).toEqual(['hello', 'step', 'save']);
    expect(events.every((event) => event.rank === 1)).toBe(true);
    socket.destroy();
    await expect.poll(() => events.at(-1)).toEqual({ rank: 1, pid: 7, gone: true });
  });

  it('drops what is no message and lives on', async () => {
    const { path, events } = await listen();
    const socket = connect(path);
    socket.write(
      `not json\n{"t":"unknown"}\n{"t":"hello","v":9}\n[]\n${hello(0)}\n{"t":"measured","micro_batch":-1}\n`,
    );
    socket.write('{"t":"step","n":1}\n');
    await expect.poll(() => events.length).toBe(2);
    socket.destroy();
  });

  it('cuts off a peer whose line never ends', async () => {
    const { path } = await listen();
    const socket = connect(path);
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.on('error', () => {}); // the cut may show as a reset
    socket.write(Buffer.alloc(3 * 1024 * 1024, 'x'));
    await closed;
  });

  it('speaks to every rank', async () => {
    const { path, events } = await listen();
    const heard: string[] = [];
    const sockets = [0, 1].map((rank) => {
      const socket = connect(path);
      socket.on('data', (chunk) => heard.push(`${rank}:${String(chunk).trim()}`));
      socket.write(`${hello(rank)}\n`);
      return socket;
    });
    await expect.poll(() => events.length).toBe(2);
    server?.broadcast({ t: 'end' });
    await expect.poll(() => heard.toSorted()).toEqual(['0:{"t":"end"}', '1:{"t":"end"}']);
    for (const socket of sockets) socket.destroy();
  });
});

/** Writes all of it, however slowly it is taken; resolves when it is out, or the peer is gone. */
function pour(path: string, text: string): { socket: ReturnType<typeof connect>; done: Promise<void> } {
  const socket = connect(path);
  socket.on('error', () => {});
  const done = new Promise<void>((resolve) => {
    socket.on('close', () => resolve());
    socket.write(text, () => resolve());
  });
  return { socket, done };
}

describe('a job that writes to the hook’s socket by itself', () => {
  it('is listened to at a bounded rate, and loses nothing that it says', async () => {
    const { path, events } = await listen();
    const lines = Array.from({ length: 5600 }, (_, n) => `{"t":"step","n":${n}}\n`);
    const started = performance.now();
    const { socket } = pour(path, `${hello(0)}\n${lines.join('')}`);
    await expect.poll(() => events.length, { timeout: 20_000 }).toBe(5601);
    // 5000 at once, and 500 a second after
    expect(performance.now() - started).toBeGreaterThan(1000);
    socket.destroy();
  });

  it('is not listened to any more after a thousand mistakes, which take a handful of lines in the log', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'oomtune-hook-')), 'hook.sock');
    const events: HookEvent[] = [];
    const said: string[] = [];
    const log = { ...createLog('test', 'silent'), warn: (_: object, text: string) => said.push(text) };
    server = await HookServer.listen(path, log as unknown as Log, (event) => events.push(event));
    const { socket, done } = pour(path, 'no message\n'.repeat(100_000));
    await expect.poll(() => events.at(-1)).toMatchObject({ message: { t: 'goodbye', reason: 'flood' } });
    await done;
    await expect.poll(() => socket.destroyed).toBe(true);
    expect(said.length).toBeLessThan(10);
    expect(existsSync(path)).toBe(false);
  });

  it('keeps the connections of no more than 256 open', async () => {
    const { path, events } = await listen();
    const closed = new Set<number>();
    const sockets = Array.from({ length: 300 }, (_, at) => {
      const socket = connect(path);
      socket.on('error', () => {});
      socket.on('close', () => closed.add(at));
      return socket;
    });
    await expect.poll(() => closed.size).toBe(44);
    const left = sockets.find((_, at) => !closed.has(at));
    left?.write(`${hello(0)}\n`);
    await expect.poll(() => events.length).toBe(1);
    for (const socket of sockets) socket.destroy();
  });

  it('has its words cut, its figures held to what can be, and its rank for good', async () => {
    const { path, events } = await listen();
    const many = Array.from({ length: 999 }, (_, n) => `code_${'abcdefghij'[n % 10]}${'x'.repeat(n % 40)}`);
    const can = { batch: true, accumulation: true, amp: true, checkpointing: true };
    const said = [
      { t: 'hello', v: 1, pid: 7, rank: 5000, world_size: 2 },
      { t: 'hello', v: 1, pid: 7, rank: 3, world_size: 4 },
      { t: 'hello', v: 1, pid: 7, rank: 2, world_size: 4 },
      { t: 'loop', own_batch: 8, own_accumulation: 1, can, warnings: [...many, 'No code!', 'x'.repeat(99)] },
      { t: 'measured', micro_batch: 1, accumulation: 1, steps: 1, total_bytes: 1e300, step_s: Array(9999).fill(1) },
      { t: 'measured', micro_batch: 1e300, accumulation: 1, steps: 1 },
      { t: 'warn', code: 'x'.repeat(99), message: '' },
      { t: 'warn', code: 'sum_loss', message: 'm'.repeat(99_999) },
    ];
    const { socket } = pour(path, said.map((message) => `${JSON.stringify(message)}\n`).join(''));
    await expect.poll(() => events.length).toBe(4);
    expect(events.every((event) => event.rank === 3)).toBe(true);
    const [, loop, measured, warn] = events.map((event) => ('message' in event ? event.message : null));
    expect(loop).toMatchObject({ t: 'loop', warnings: expect.toSatisfy((codes: string[]) => codes.length === 32) });
    expect(measured).toMatchObject({ total_bytes: null, step_s: expect.toSatisfy((s: number[]) => s.length === 1024) });
    expect(warn).toMatchObject({ message: 'm'.repeat(1000) });
    socket.destroy();
  });
});
