import { afterAll, expect, it, vi } from 'vitest';
import type { DaemonStatus } from '../../src/contract/verbs.js';
import { Oomtune } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

const said = async (...words: string[]) => (await oomtune.call(words)).stdout;

it('that a daemon was killed is told at once, with what helps', async () => {
  expect((await oomtune.call(['daemon', 'start', '--http-port', '0'])).code).toBe(0);
  expect((await oomtune.call(['submit', '--device', 'cpu', '--name', 'runs', '--', 'sleep', '60'])).code).toBe(0);
  await vi.waitFor(async () => expect(await said('explain', 'runs')).toContain('and runs on'), { timeout: 30_000 });
  const { pid } = (await oomtune.json(['daemon', 'status'])) as DaemonStatus;
  process.kill(pid as number, 'SIGKILL');
  await vi.waitFor(() => expect(() => process.kill(pid as number, 0)).toThrow(), { timeout: 5000 });
  const { stderr } = await oomtune.call(['submit', '--device', 'cpu', '--name', 'new', '--', 'true']);
  expect(stderr).toContain('note: no daemon runs: the job waits until one is started with `oomtune daemon start`.');
  const start = '`oomtune daemon start` starts one';
  expect(await said('explain', 'new')).toContain(`and waits for a daemon.\n  ${start}`);
  expect(await said('status', 'new')).toContain(start);
  const listed = await said('status');
  expect(listed).toContain('waits for a daemon (`oomtune daemon start`)');
  expect(listed).toMatch(/has not been heard since \S+; `oomtune daemon start`/);
  expect(await said('explain', 'runs')).toMatch(
    /; `oomtune daemon start` looks after the job again, which may still run/,
  );
  const asked = Date.now();
  const cancelled = await oomtune.call(['cancel', 'runs']);
  expect(Date.now() - asked).toBeLessThan(10_000);
  const waits = /cancelled by the user; \S+ has not been heard since \S+, and ends it once `oomtune daemon start`/;
  expect(cancelled).toMatchObject({ code: 0, stderr: expect.stringMatching(waits) });
  expect(cancelled.stderr).toContain('is to be cancelled');
  expect(await said('status')).toContain('cancelled by the user');
});
