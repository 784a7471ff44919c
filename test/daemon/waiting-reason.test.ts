import { expect, test } from 'vitest';
import { requirementOf } from '../../src/daemon/routing.js';
import { waitingReason } from '../../src/daemon/sweeper.js';
import type { StoredJob } from '../../src/store/index.js';
import { waitReason } from '../../src/store/lease-request.js';
import { job, options } from '../store/samples.js';

const alive = ['a', 'b'].map((host) => ({ host, devices: [{ id: 'cpu', model: 'Xeon', total_bytes: 2 ** 34 }] }));
const taken = (id: string, claimHost: string): StoredJob => ({ ...job({ job: id }), claimHost }) as StoredJob;
const why = (changes: Parameters<typeof options>[0], live: StoredJob[] = []): string =>
  waitingReason(requirementOf(options(changes)), alive, live);

test('a host without a daemon is named as that', () => {
  expect(why({ host: 'c' })).toBe('no daemon runs on c; there are a, b');
});

test('a device that nobody has is named', () => {
  expect(why({ device: null, gpuModel: 'H200' })).toBe('no host has a GPU of model "h200"; there are a, b');
  expect(why({ device: 'cuda', host: 'a' })).toBe('no host has a GPU on a; there are a, b');
});

test('busy hosts are named with what keeps them busy', () => {
  expect(why({})).toBe('waits in its queue for a, b');
  expect(why({ host: 'a' }, [taken('j-one', 'b')])).toBe('waits in its queue for a');
  const live = [taken('j-one', 'b'), taken('j-two', 'a'), taken('j-three', 'b')];
  expect(why({ host: 'b' }, live)).toBe('waits in its queue for b, busy with j-one and 1 more');
});

test('of many devices those that somebody holds are named first, and a free one is not said to be in use', () => {
  const entry = (at: number, foreign: number) => ({
    id: `cuda:${at}`,
    uuid: `GPU-${at}`,
    total: 80 * 2 ** 30,
    foreign,
    reserved: 0,
    owners: [],
  });
  const waits = [0, 1, 2, 3, 4, 5].map((at) => entry(at, at > 3 ? 30 * 2 ** 30 : 0));
  const text = waitReason({ waits, passed: false }, [], { bytes: null, count: 6, lenient: false, user: 'alice' });
  expect(text).toMatch(
    /^waits for 6 devices, a whole device: cuda:4 of 80 GiB: 30 GiB are used by .*; cuda:5 of 80 GiB: /,
  );
  expect(text).toMatch(/cuda:0 of 80 GiB: free; cuda:1 of 80 GiB: free; and 2 more$/);
});
