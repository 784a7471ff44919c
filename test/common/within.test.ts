import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { TimeUp, unlessAborted, within } from '../../src/common/within.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const outer = new AbortController().signal;

/** Waits for the signal as whatever waits for a job does: nobody else knows of the signal. */
const patient = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

describe('within', () => {
  test('ends when the time is up, though all garbage is collected meanwhile', async () => {
    const collecting = setInterval(collectGarbage, 5);
    const ends = Array.from({ length: 8 }, () => within(200, outer, patient).catch((error: unknown) => error));
    for (const end of await Promise.all(ends)) expect(end).toBeInstanceOf(TimeUp);
    clearInterval(collecting);
  });

  test('ends work that looks at no signal, with the reason of the outer one', async () => {
    const controller = new AbortController();
    const work = within(60_000, controller.signal, () => new Promise(() => {}));
    controller.abort(new Error('stop'));
    await expect(work).rejects.toThrow('stop');
    await expect(within(60_000, controller.signal, async () => 1)).rejects.toThrow('stop'); // not even begun
  });

  test('hands on what the work comes to, and what it throws', async () => {
    expect(await within(60_000, outer, async () => 7)).toBe(7);
    await expect(within(60_000, outer, () => Promise.reject(new Error('its own')))).rejects.toThrow('its own');
  });
});

test('unlessAborted leaves the work the time that it is given', async () => {
  const controller = new AbortController();
  const slow = new Promise<number>((resolve) => setTimeout(resolve, 50, 5));
  const first = unlessAborted(controller.signal, () => slow, 60_000);
  const second = unlessAborted(controller.signal, () => new Promise(() => {}), 20);
  const third = expect(second).rejects.toThrow('stop');
  controller.abort(new Error('stop'));
  expect(await first).toBe(5);
  await third;
});
