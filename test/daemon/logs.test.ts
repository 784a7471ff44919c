import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ENDED_STATES } from '../../src/contract/job.js';
import { Host, sleep } from './host.js';

let host: Host;
beforeEach(() => {
  host = new Host();
});
afterEach(() => host.close());

const rss = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${host.daemon?.pid}/status`, 'utf8'))?.[1]);

/** Follows as any other host would: through Redis alone. */
async function follow(id: string): Promise<{ text: string; skipped: number }> {
  const store = await host.store();
  const ended = async () => ENDED_STATES.includes((await host.job(id)).state);
  let text = '';
  let skipped = 0;
  for await (const piece of store.logs.follow(id, { signal: new AbortController().signal, ended })) {
    text += piece.data.toString('latin1');
    skipped += piece.skipped;
  }
  return { text, skipped };
}

test('a job is followed live through Redis, from before its start to its end', async () => {
  await host.start();
  const id = await host.shell(
    'for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done; printf "no newline"; echo oops >&2',
  );
  expect(await follow(id)).toEqual({ text: 'line 1\nline 2\nline 3\nline 4\nline 5\nno newlineoops\n', skipped: 0 });
});

test('a gibibyte without a newline leaves the daemon and Redis as small as they were', async () => {
  await host.start();
  await host.state(await host.shell('echo warm'), 'succeeded');
  const before = rss();
  const id = await host.submit(
    ['/bin/sh', '-c', 'head -c 1073741824 /dev/zero | tr "\\0" x; printf END'],
    {},
    process.env,
  );
  await host.state(id, 'running');
  let most = 0;
  while (!ENDED_STATES.includes((await host.job(id)).state)) {
    most = Math.max(most, rss());
    await sleep(100);
  }
  expect((await host.job(id)).state).toBe('succeeded');
  expect(most - before).toBeLessThan(64 * 1024); // KiB
  const store = await host.store();
  expect(await store.connection.redis.memory('USAGE', store.keys.log(id))).toBeLessThan(2 * 1024 * 1024);
  const pieces = await store.logs.read(id);
  expect(
    Buffer.concat(pieces.map((piece) => piece.data))
      .toString('latin1')
      .endsWith('xEND'),
  ).toBe(true);
  expect(pieces.reduce((sum, piece) => sum + piece.skipped, 0)).toBeGreaterThan(1024 * 1024);
});
