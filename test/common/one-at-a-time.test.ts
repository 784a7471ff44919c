import { expect, it } from 'vitest';
import { OneAtATime } from '../../src/common/one-at-a-time.js';

/** Looks that take as many turns of the microtask queue as given; when each began, by a count of what happened. */
function looks(turns: number): { one: OneAtATime; began: number[]; happened: () => number } {
  let events = 0;
  const happened = () => {
    events += 1;
    return events;
  };
  const began: number[] = [];
  const one = new OneAtATime(async () => {
    began.push(happened());
    for (let n = 0; n < turns; n += 1) await null;
  });
  return { one, began, happened };
}

it.each([...Array(16).keys()])('a call is followed by a look, also %i turns after one has begun', async (later) => {
  const { one, began, happened } = looks(3);
  const first = one.call();
  for (let n = 0; n < later; n += 1) await null;
  const called = happened();
  const second = one.call();
  await Promise.all([first, second]);
  expect(began.at(-1)).toBeGreaterThan(called);
  expect(began.length).toBe(2);
});

it('looks once for many calls in between, and never twice at a time', async () => {
  let running = 0;
  let most = 0;
  let count = 0;
  const one = new OneAtATime(async () => {
    count += 1;
    running += 1;
    most = Math.max(most, running);
    await new Promise((done) => setTimeout(done, 5));
    running -= 1;
  });
  await Promise.all(Array.from({ length: 20 }, () => one.call()));
  expect([count, most]).toEqual([2, 1]);
});

it('tells of the error of a look, and looks again for a call in between', async () => {
  let count = 0;
  const one = new OneAtATime(async () => {
    count += 1;
    await null;
    if (count === 1) throw new Error('lost');
  });
  const first = one.call();
  const second = one.call();
  await expect(first).rejects.toThrow('lost');
  await expect(second).rejects.toThrow('lost');
  await one.idle();
  expect(count).toBe(2);
});
