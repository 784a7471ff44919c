import { mkdtempSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { type HookEvent, HookServer } from '../../src/worker/hook-server.js';

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
    await expect.poll(() => events.at(-1)).toEqual({ rank: 1, gone: true });
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
