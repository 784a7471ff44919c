import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { SearchFollow } from '../../src/cli/search-follow.js';
import type { Observation } from '../../src/contract/measurement.js';
import { job } from '../store/samples.js';
import { submitted } from './contract.js';
import { Oomtune, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

it('logs -f says that it is searching, and shows each probe and what came of it', async () => {
  copyFileSync(join(ROOT, 'test', 'fixtures', 'worker', 'tiny.py'), join(oomtune.home, 'tiny.py'));
  const options = ['--device', 'cpu', '--budget', '38MiB', '--effective-batch', '512', '--timeout', '60'];
  const sent = await oomtune.json(['submit', ...options, '--', PYTHON, 'tiny.py']);
  const { job: id } = submitted.parse(sent);
  const following = oomtune.start(['logs', '-f', id]);
  expect((await oomtune.call(['daemon', 'start'])).code).toBe(0);
  const { code, stderr } = await following.ended;
  expect(code, stderr).toBe(0);
  expect(stderr).toContain(`${id} is being searched for its configuration`);
  expect(stderr).toContain('launch 1 of the search');
  expect(stderr.match(/✓ micro-batch +\d+ .* fit/g)?.length ?? 0).toBeGreaterThan(1);
  expect(stderr).toMatch(/the search is done: j-\w+ runs with micro-batch \d+/);
  expect(stderr).not.toMatch(/waits: (trying|launch)/);
}, 180_000);

it('tells each step of a search once, and nothing of a job that is not searched', () => {
  const said: string[] = [];
  const plain = (_style: unknown, text: string): string => text;
  const follow = new SearchFollow((text) => said.push(text), plain);
  follow.look(job({ state: 'running' }));
  expect(said).toEqual([]);
  const observation: Observation = {
    ...{
      rung: { amp: 'off', checkpointing: false },
      micro_batch: 4,
      accumulation: 1,
      launch: 1,
      fresh: true,
      steps: 3,
    },
    ...{ outcome: 'device_oom', ambiguous: false, phase: 'train', alloc_retries: 0, step_s: null, refused_bytes: 1 },
    ...{ evidence: 'CUDA out of memory', alive: true },
    peaks: {
      ...{ total_bytes: null, forward_backward_bytes: null, optimizer_bytes: null },
      ...{ reserved_bytes: null, resident_bytes: null },
    },
  };
  const searching = job({ state: 'searching', launches: [{ launch: 1, dir: '/d', purpose: 'search', config: null }] });
  follow.look(searching);
  follow.look({ ...searching, journal: [observation] });
  follow.look({ ...searching, journal: [observation] });
  follow.look({ ...searching, state: 'exhausted', journal: [observation] });
  expect(said).toHaveLength(3);
  expect(said[2]).toMatch(/✗ micro-batch +4 .*out of memory +CUDA out of memory/);
});
