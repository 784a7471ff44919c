import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store/index.js';
import { useHome } from './home.js';

useHome();
let store: Store;
beforeAll(async () => {
  store = await openStore();
});
afterAll(() => store.close());

test('a tail stays small whatever is written, and says how much it left out', async () => {
  const line = Buffer.alloc(1024 * 1024, 'x');
  for (let n = 0; n < 20; n += 1) await store.logs.append('j-aaaa2222', 1, n * line.length, line);
  const pieces = await store.logs.read('j-aaaa2222');
  const kept = pieces.reduce((sum, piece) => sum + piece.data.length, 0);
  expect(kept).toBeLessThanOrEqual(512 * 1024);
  expect(kept).toBeGreaterThan(256 * 1024);
  expect((pieces[0]?.skipped ?? 0) + kept).toBe(20 * line.length);
  expect(await store.connection.redis.memory('USAGE', store.keys.log('j-aaaa2222'))).toBeLessThan(1024 * 1024);
});

test('bytes come out as they went in, across pieces and launches', async () => {
  const data = Buffer.from(Array.from({ length: 20_000 }, (_, at) => at % 256));
  await store.logs.append('j-bbbb2222', 1, 0, data);
  await store.logs.append('j-bbbb2222', 2, 0, Buffer.from('again'));
  const pieces = await store.logs.read('j-bbbb2222');
  const of = (launch: number) => Buffer.concat(pieces.filter((one) => one.launch === launch).map((one) => one.data));
  expect(of(1).equals(data)).toBe(true);
  expect(of(2).toString()).toBe('again');
  expect(pieces.every((piece) => piece.skipped === 0)).toBe(true);
});

test('who follows gets what is there, then what comes, then the end', async () => {
  let ended = false;
  const got: string[] = [];
  const done = (async () => {
    const signal = new AbortController().signal;
    for await (const piece of store.logs.follow('j-cccc2222', { signal, ended: async () => ended }))
      got.push(piece.data.toString());
  })();
  await store.logs.append('j-cccc2222', 1, 0, Buffer.from('one'));
  await new Promise((resolve) => setTimeout(resolve, 100));
  await store.logs.append('j-cccc2222', 1, 3, Buffer.from('two'));
  ended = true;
  await done;
  expect(got).toEqual(['one', 'two']);
});

test('who follows can leave', async () => {
  const controller = new AbortController();
  const follow = store.logs.follow('j-dddd2222', { signal: controller.signal, ended: async () => false });
  const next = follow.next();
  controller.abort();
  expect((await next).done).toBe(true);
});
