import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readJson } from '../../src/contract/fields.js';
import { requirement } from '../../src/contract/state.js';
import { labelFor, labelOf, requirementOf, describe as say, suits } from '../../src/daemon/routing.js';
import { options } from '../store/samples.js';

const GIB = 1024 ** 3;
const gpu = (index: number, model = 'NVIDIA H200', gib = 140) => ({
  id: `cuda:${index}`,
  model,
  total_bytes: gib * GIB,
});
const cpu = { id: 'cpu', model: 'Xeon', total_bytes: 64 * GIB };
const small = { host: 'small', devices: [cpu] };
const big = { host: 'big', devices: [gpu(0), gpu(1), cpu] };
const of = (changes: Parameters<typeof options>[0]) =>
  requirementOf(options({ device: null, budget: null, ...changes }));

test.each([
  [{}, true, true],
  [{ device: 'cpu' }, true, true],
  [{ device: 'cuda' }, false, true],
  [{ device: 'cuda:1' }, false, true],
  [{ device: 'cuda:2' }, false, false],
  [{ gpus: 2 }, false, true],
  [{ gpus: 3 }, false, false],
  [{ gpuModel: 'H200' }, false, true],
  [{ gpuModel: 'A100' }, false, false],
  [{ host: 'small' }, true, false],
  [{ budget: '100GiB' }, false, true],
  [{ budget: '50%' }, true, true],
  [{ budget: '200GiB' }, false, false],
  [{ device: 'cpu', budget: '65GiB' }, false, false],
] as const)('%j: small %s, big %s', (changes, onSmall, onBig) => {
  expect([suits(of(changes), small), suits(of(changes), big)]).toEqual([onSmall, onBig]);
});

test('each user has queues of his own, in which priorities count; what an admin put first is in one for all', () => {
  const label = (owner: string | null, changes = {}) => labelFor({ owner, options: options(changes) });
  expect(label(null)).toBe('cpu'); // as before there were owners
  expect(label('alice')).toBe(label('alice', { priority: 5 }));
  expect(label('alice')).not.toBe(label('bob'));
  expect(label('alice', { priority: 5, acrossUsers: true })).toBe(label('bob', { priority: 7, acrossUsers: true }));
  expect(label('ä b/c:d')).toMatch(/^cpu-[a-z0-9-]+$/);
});

test('jobs with the same wish share a queue, others never do, and every label is a name that BullMQ takes', () => {
  const wish = fc.record({
    device: fc.constantFrom(null, 'cpu', 'cuda', 'cuda:0', 'cuda:1'),
    gpus: fc.integer({ min: 1, max: 4 }),
    gpuModel: fc.option(fc.string({ minLength: 1, maxLength: 30 })),
    host: fc.option(fc.string({ minLength: 1, maxLength: 30 })),
    budget: fc.constantFrom(null, '1GiB', '5GiB', '24GiB', '80%'),
    exclusive: fc.boolean(),
  });
  fc.assert(
    fc.property(wish, wish, (one, other) => {
      const [a, b] = [of(one), of(other)];
      expect(labelOf(a)).toMatch(/^(any|cpu|cuda)[a-z0-9-]*$/);
      expect(labelOf(a) === labelOf(b)).toBe(JSON.stringify(a) === JSON.stringify(b));
      expect(readJson(requirement, JSON.stringify(a))).toEqual(a);
      expect(say(a).length).toBeGreaterThan(0);
    }),
  );
});

test('jobs that take different amounts of a GPU wait in different queues, those of the host in one', () => {
  const takes = (changes: Parameters<typeof of>[0]) => labelOf(of(changes));
  expect(takes({ budget: '900MiB' })).toBe(takes({ budget: '1GiB' }));
  const labels = [{}, { budget: '1GiB' }, { budget: '5GiB' }, { budget: '24GiB' }, { budget: '50%' }].map(takes);
  expect(new Set(labels).size).toBe(5);
  expect(takes({ budget: '5GiB', exclusive: true })).toBe('any');
  expect(takes({ device: 'cpu', budget: '1GiB' })).toBe(takes({ device: 'cpu' }));
});

test('percentages share queues by whole per cents, and sizes that nobody can read are in one', () => {
  const label = (budget: string) => labelOf(of({ budget }));
  expect(label('12.345%')).toBe(label('13%'));
  expect(label('12.345%')).not.toBe(label('12%'));
  expect(label('57%')).toBe(label(' 57.0 %'));
  expect(label('99999%')).toBe(label('much'));
  const labels = new Set(Array.from({ length: 1000 }, (_, at) => label(`${(at + 1) / 10}%`)));
  expect(labels.size).toBe(100);
});

test('jobs that are packed by what is recorded wait by their names, in a bounded number of queues', () => {
  const named = (name: string | null, more = {}) => labelOf(of({ name, share: true, ...more }));
  expect(named('bert')).toBe(named('bert'));
  expect(named('bert')).not.toBe(named('vit'));
  expect(named('bert', { exclusive: true })).toBe('any');
  expect(named('bert', { budget: '5GiB' })).toBe(labelOf(of({ budget: '5GiB' })));
  expect(labelOf(of({ name: 'bert', share: false }))).toBe('any');
  const labels = new Set(Array.from({ length: 500 }, (_, at) => named(`job-${at}`)));
  expect(labels.size).toBe(16);
});
