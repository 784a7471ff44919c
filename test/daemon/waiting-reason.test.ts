import { describe, expect, test } from 'vitest';
import { requirementOf } from '../../src/daemon/routing.js';
import { waitingReason } from '../../src/daemon/sweeper.js';
import type { StoredJob } from '../../src/store/index.js';
import { waitReason } from '../../src/store/lease-request.js';
import { shortWait } from '../../src/store/short-wait.js';
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

test('a device that only a host may have that is not heard is not said to be nowhere', () => {
  const silent = (changes: Parameters<typeof options>[0]) =>
    waitingReason(requirementOf(options(changes)), alive, [], ['big']);
  expect(silent({ device: 'cuda', budget: '19GiB' })).toBe(
    'no host has a GPU with 19 GiB or more; there are a, b; not heard, and may have it: big',
  );
  expect(silent({ device: 'cuda', host: 'a' })).toBe('no host has a GPU on a; there are a, b');
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

describe('in one line, a reason to wait', () => {
  const GIB = 2 ** 30;
  const entry = (at: number, more: Record<string, unknown> = {}) => ({
    id: `cuda:${at}`,
    uuid: `GPU-${at}`,
    total: 140 * GIB,
    foreign: 0,
    reserved: 0,
    owners: [] as { owner: string; bytes?: number; host: string; expired: boolean }[],
    ...more,
  });
  const held = (owner: string, bytes?: number) => ({ owner, ...(bytes ? { bytes } : {}), host: 'h', expired: false });
  const device = (at: number, ...pids: number[]) => ({
    uuid: `GPU-${at}`,
    processes: pids.map((pid) => ({ pid, name: '/usr/bin/blender, of a, b', used_bytes: GIB, ours: false, job: null })),
  });
  const short = (waits: object[], devices: object[] = [], request = {}) => {
    const asked = { bytes: null, count: 1, lenient: false, user: 'alice', ...request };
    const reply = { waits, passed: false } as Parameters<typeof waitReason>[0];
    return shortWait(waitReason(reply, devices as Parameters<typeof waitReason>[1], asked));
  };

  test('names the process that is not ours before the jobs, which end by themselves', () => {
    const jobs = [0, 1, 2].map((at) => entry(at, { owners: [held('j-aaaaaa')] }));
    const stranger = entry(3, { foreign: 37 * GIB });
    expect(short([stranger, ...jobs], [device(3, 7)], { count: 4 })).toBe(
      '4 GPUs: cuda:3 is held by a process that is not ours, 37 GiB',
    );
    expect(short([stranger, ...jobs], [device(3, 7, 8)])).toBe(
      'a GPU: cuda:3 is held by processes that are not ours, 37 GiB',
    );
    expect(short([stranger])).toBe('a GPU: cuda:3 is held by processes that are not ours, 37 GiB');
  });

  test('names who goes first, or else who holds a device', () => {
    const [one, two] = [entry(0, { owners: [held('j-aaaaaa')] }), entry(1, { blocked: 'j-bbbbbb', why: 'priority' })];
    expect(short([one, two], [], { bytes: 24 * GIB })).toBe(
      '24 GiB of a GPU: cuda:1 is kept: j-bbbbbb has a higher priority',
    );
    expect(short([one])).toBe('a GPU: cuda:0 is held by j-aaaaaa');
    expect(short([entry(0, { owners: [held('j-aaaaaa', 8 * GIB), held('j-cccccc', GIB)] })])).toBe(
      'a GPU: cuda:0 is held by j-aaaaaa and others',
    );
    expect(short([entry(0, { blocked: 'j-x', user: 'bob', why: 'usage' })])).toBe(
      'a GPU: cuda:0 is kept: bob has used less lately (j-x)',
    );
  });

  test('is any other reason as it stands', () => {
    for (const reason of ['waits in its queue for a, b', 'waits for j-abcdef to succeed', 'trying micro-batch 8', ''])
      expect(shortWait(reason)).toBe(reason);
  });
});
