import { Queue, Worker } from 'bullmq';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { requirementOf } from '../../src/daemon/routing.js';
import { openStore, type Store } from '../../src/store/index.js';
import { useHome } from './home.js';
import { options } from './samples.js';

useHome();

const LABEL = 'label';
const TOKEN = 'token';

/** What this file knows of BullMQ's keys: an upgrade that keeps them otherwise fails here first. */
describe("entries of BullMQ's queues, as its installed version keeps them", () => {
  let store: Store;
  let queue: Queue;
  let worker: Worker;
  beforeAll(async () => {
    store = await openStore();
  });
  afterAll(() => store.close());
  beforeEach(async () => {
    await store.connection.redis.flushall();
    const options = { connection: store.connection.another(), prefix: store.queues.prefix };
    queue = new Queue(LABEL, options);
    worker = new Worker(LABEL, null, { ...options, autorun: false });
  });
  afterEach(async () => {
    await worker.close(true);
    await queue.close();
  });

  const add = (id: string, priority: number) => queue.add('job', { job: id }, { jobId: id, priority });
  const take = () => worker.getNextJob(TOKEN, { block: false });

  it('stand in the queue from when they are added until they are done', async () => {
    await add('a', 5);
    await add('b', 5);
    const standing = () => store.queues.standing(LABEL, ['a', 'b', 'c']);
    expect(await standing()).toEqual(['a', 'b']);
    const taken = await take();
    expect(taken?.id).toBe('a');
    expect(await standing()).toEqual(['a', 'b']);
    await taken?.moveToWait(TOKEN);
    expect(await standing()).toEqual(['a', 'b']);
    await (await take())?.moveToCompleted('', TOKEN, false);
    expect(await standing()).toEqual(['b']);
  });

  it('tell the priority and the age of the one that is taken next', async () => {
    expect(await store.queues.head(LABEL)).toEqual({ priority: null, since: 0 });
    const before = Date.now();
    await add('late', 1_048_577);
    await add('first', 1_048_570);
    const head = await store.queues.head(LABEL);
    expect(head.priority).toBe(1_048_570);
    expect(head.since).toBeGreaterThanOrEqual(before);
    expect(head.since).toBeLessThanOrEqual(Date.now());
    expect((await take())?.id).toBe('first');
  });

  it('that were put back are taken first of their priority again; those without one stand in the list itself', async () => {
    await add('a', 7);
    const taken = await take();
    await add('b', 7);
    await taken?.moveToWait(TOKEN);
    expect(await store.queues.head(LABEL)).toMatchObject({ priority: 7, since: taken?.timestamp });
    expect((await take())?.id).toBe('a');
    await queue.remove('b');
    const plain = await queue.add('job', {}, { jobId: 'plain' });
    expect(await store.queues.head(LABEL)).toEqual({ priority: null, since: plain.timestamp });
  });

  it('that are gone leave nothing of their queue once it is removed, which no queue is that holds one', async () => {
    const { connection, keys, queues } = store;
    const left = () => connection.redis.keys(`${queues.prefix}:${LABEL}:*`);
    const gone = async () => [...(await queues.empty([LABEL])), await queues.removeEmpty(LABEL)];
    expect(await queues.addLabel(LABEL, requirementOf(options()))).toBe(true);
    await add('a', 5);
    expect(await gone()).toEqual([false]);
    const taken = await take();
    expect(await gone()).toEqual([false]);
    await taken?.moveToWait(TOKEN);
    expect(await gone()).toEqual([false]);
    await (await take())?.moveToCompleted('', TOKEN, true);
    await queue.add('job', {}, { jobId: 'later', delay: 60_000 });
    expect(await gone()).toEqual([false]);
    expect(await connection.redis.hkeys(keys.labels)).toEqual([LABEL]);
    await queue.remove('later');
    await add('b', 5);
    await (await take())?.moveToCompleted('', TOKEN, false);
    expect((await left()).length).toBeGreaterThan(0);
    expect(await gone()).toEqual([false]); // BullMQ keeps what has ended here
    await Promise.all(['a', 'b'].map((id) => queue.remove(id)));
    expect(await gone()).toEqual([LABEL, true]);
    expect(await left()).toEqual([]);
    expect(await connection.redis.hkeys(keys.labels)).toEqual([]);
  });

  it('that are added while their queue is removed again and again stand in it, each once', async () => {
    const other = new Queue(LABEL, { connection: store.connection.another(), prefix: store.queues.prefix });
    let removed = 0;
    let over = false;
    const removing = (async () => {
      while (!over) if (await store.queues.removeEmpty(LABEL)) removed += 1;
    })();
    const ids = Array.from({ length: 200 }, (_, at) => `j${at}`);
    for (const [at, id] of ids.entries()) {
      await (at % 2 === 0 ? queue : other).add('job', { job: id }, { jobId: id, priority: 5, removeOnComplete: true });
      const taken = await take();
      expect(taken?.id).toBe(id);
      await taken?.moveToCompleted('', TOKEN, false);
    }
    over = true;
    await removing;
    await other.close();
    expect(removed).toBeGreaterThan(20);
  });

  it('that hold no JSON are taken out with all that is theirs, and the others stay', async () => {
    await add('good', 1);
    await add('bad', 2);
    await store.connection.redis.hset(`${store.queues.prefix}:${LABEL}:bad`, 'data', '{{{');
    expect((await take())?.id).toBe('good');
    await expect(take()).rejects.toThrow();
    expect(await store.queues.dropUnreadable(LABEL)).toEqual(['bad']);
    expect(await store.connection.redis.keys(`*:${LABEL}:bad*`)).toEqual([]);
    expect(await queue.getActiveCount()).toBe(1);
    expect(await store.queues.dropUnreadable(LABEL)).toEqual([]);
  });
});
