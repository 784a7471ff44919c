import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { toJobOptions } from '../../src/cli/job-options.js';
import { ERROR_CODES } from '../../src/common/errors.js';
import { PACKAGE_ROOT } from '../../src/common/home.js';
import { hookMessage } from '../../src/contract/hook.js';
import { asRecord, NO_PEAKS, type Observation, probeRecord } from '../../src/contract/measurement.js';
import { jobOptions, MOST_PROBE_STEPS } from '../../src/contract/options.js';
import { rungName } from '../../src/contract/rung.js';

/** Things that were once said in two places, and not the same. */

const sources = readdirSync(join(PACKAGE_ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts'))
  .map((path) => ({ path, text: readFileSync(join(PACKAGE_ROOT, 'src', path), 'utf8') }));

it('the record of a probe has its whole rung, offload included', () => {
  const observation: Observation = {
    ...{ rung: { amp: 'bf16', checkpointing: true, offload: true }, micro_batch: 8, accumulation: 1, steps: 3 },
    ...{ launch: 1, fresh: true, outcome: 'fit', ambiguous: false, phase: null, peaks: NO_PEAKS, alloc_retries: 0 },
    ...{ step_s: 1, wall_s: 2, refused_bytes: null, evidence: null, alive: true },
  };
  expect(probeRecord.parse(asRecord(observation))).toMatchObject({ amp: 'bf16', checkpointing: true, offload: true });
});

it('the record of a probe tells how tight it was, where that was measured', () => {
  const observation: Observation = {
    ...{ rung: { amp: 'off', checkpointing: false }, micro_batch: 336, accumulation: 1, steps: 20, launch: 1 },
    ...{ fresh: true, outcome: 'fit', ambiguous: false, phase: null, alloc_retries: 3, alive: true, step_s: 1 },
    ...{ peaks: { ...NO_PEAKS, total_bytes: 4096, needed_bytes: 3072, pieces_bytes: 512 } },
    ...{ wall_s: 2, refused_bytes: null, evidence: null },
  };
  const told = { alloc_retries: 3, needed_bytes: 3072, pieces_bytes: 512 };
  expect(probeRecord.parse(asRecord(observation))).toMatchObject(told);
  const easy = asRecord({ ...observation, alloc_retries: 0, peaks: { ...NO_PEAKS, total_bytes: 4096 } });
  for (const name of Object.keys(told)) expect(probeRecord.parse(easy)).not.toHaveProperty(name);
});

it('the hook’s fp16 and the bytes that stay resident after a step arrive', () => {
  const can = { batch: true, accumulation: true, amp: false, fp16: true, checkpointing: false };
  const loop = { t: 'loop', own_batch: 4, own_accumulation: 1, samples: 100, can };
  expect(hookMessage.parse(loop)).toMatchObject({ can: { amp: false, fp16: true } });
  const step = { t: 'step', n: 3, resident_bytes: 500, allocated_bytes: 900 };
  expect(hookMessage.parse(step)).toEqual({ t: 'step', n: 3, resident_bytes: 500 });
});

it('the steps of a probe have one bound, on the command line and in a record', () => {
  const options = (steps: number) => toJobOptions({ steps: String(steps) }, ['true']);
  const most = options(MOST_PROBE_STEPS);
  expect(most.steps).toBe(MOST_PROBE_STEPS);
  expect(jobOptions.parse(most).steps).toBe(MOST_PROBE_STEPS);
  expect(() => options(MOST_PROBE_STEPS + 1)).toThrow(`from 2 to ${MOST_PROBE_STEPS}`);
  expect(jobOptions.safeParse({ ...most, steps: MOST_PROBE_STEPS + 1 }).success).toBe(false);
});

it('the boot of the machine is read in one place', () => {
  expect(sources.filter(({ text }) => text.includes('random/boot_id')).map(({ path }) => path)).toEqual([
    'common/process.ts',
  ]);
  expect(sources.filter(({ text }) => /\bbootId = |function bootId\b/.test(text))).toHaveLength(1);
});

it('the first rung has one name', () => {
  expect(rungName({ amp: 'off', checkpointing: false })).toBe('as it stands');
  expect(sources.filter(({ text }) => /full precision/i.test(text)).map(({ path }) => path)).toEqual([]);
});

it('the dashboard answers with codes of the list', () => {
  const codes = sources
    .filter(({ path }) => path.startsWith('daemon/http/'))
    .flatMap(({ text }) => [...text.matchAll(/'(OOMTUNE_[A-Z_]+)'/g)].map((match) => match[1] as string));
  expect(codes).toContain('OOMTUNE_HTTP_REFUSED');
  expect(codes.filter((code) => !Object.hasOwn(ERROR_CODES, code))).toEqual([]);
});

it('the page on the architecture says the rule of imports that is held', () => {
  const page = readFileSync(join(PACKAGE_ROOT, 'docs', 'architecture.md'), 'utf8').replace(/\s+/g, ' ');
  expect(page).toContain(
    'cli → daemon → worker → {tuner, runtime, store} → devices → contract → common, types included',
  );
});
