import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { OomtuneError } from '../../src/common/errors.js';
import { rungName } from '../../src/contract/rung.js';
import { ladderFrom } from '../../src/tuner/index.js';

const data = parse(readFileSync(new URL('../../config/ladder.yaml', import.meta.url), 'utf8'));
const names = (...args: Parameters<typeof ladderFrom>) => ladderFrom(...args).map(rungName);

describe('the ladder', () => {
  it('begins with the script as it stands and turns knobs on one by one', () => {
    expect(names(data)).toEqual(['as it stands', 'checkpointing', 'bf16', 'bf16 + checkpointing']);
  });

  it('computes the loss in chunks before it recomputes activations, and then on every rung', () => {
    expect(names(data, { can: { chunked_loss: true, offload: true }, exact: true })).toEqual([
      'as it stands',
      'chunked loss',
      'checkpointing + chunked loss',
      'checkpointing + offload + chunked loss',
    ]);
    expect(names(data, { can: { chunked_loss: true }, amp: 'bf16', checkpointing: 'off' })).toEqual([
      'bf16',
      'bf16 + chunked loss',
    ]);
    expect(names(data, { can: { chunked_loss: true }, exact: true, checkpointing: 'on' })).toEqual([
      'checkpointing',
      'checkpointing + chunked loss',
    ]);
  });

  it('has a compiler keep fewer activations before a model is checkpointed', () => {
    expect(names(data, { can: { activation_memory_budget: true } })).toEqual([
      'as it stands',
      'activation memory budget 0.7',
      'activation memory budget 0.5',
      'activation memory budget 0.3',
      'checkpointing',
      'bf16',
      'bf16 + activation memory budget 0.3',
      'bf16 + checkpointing',
    ]);
    expect(names(data, { can: { activation_memory_budget: true, checkpointing: false }, exact: true }).at(-1)).toBe(
      'activation memory budget 0.3',
    );
  });

  it('moves a part of the activations only where none can be computed again, and all of them last', () => {
    const can = { offload: true, offloaded_part: true };
    const parts = ['as it stands', 'offload of 0.3', 'offload of 0.6', 'offload'];
    expect(names(data, { can: { ...can, checkpointing: false }, exact: true })).toEqual(parts);
    expect(names(data, { can, checkpointing: 'off', exact: true })).toEqual(parts);
    expect(names(data, { can, exact: true })).toEqual(['as it stands', 'checkpointing', 'checkpointing + offload']);
  });

  it('keeps the state of the optimizer on the host once activations are done with, and before numerics change', () => {
    expect(names(data, { can: { optimizer_on_host: true, chunked_loss: true } })).toEqual([
      'as it stands',
      'chunked loss',
      'checkpointing + chunked loss',
      'chunked loss + optimizer on host',
      'checkpointing + chunked loss + optimizer on host',
      'bf16 + chunked loss',
      'bf16 + checkpointing + chunked loss',
      'bf16 + checkpointing + chunked loss + optimizer on host',
    ]);
    expect(names(data, { can: { optimizer_on_host: true, checkpointing: false }, exact: true })).toEqual([
      'as it stands',
      'optimizer on host',
    ]);
    expect(names(data, { can: { optimizer_on_host: true, offload: true }, exact: true }).at(-1)).toBe(
      'checkpointing + offload + optimizer on host',
    );
  });

  it('ends with offload where that can be done', () => {
    const rungs = ladderFrom(data, { can: { offload: true } });
    expect(rungs.map((rung) => rung.offload ?? false)).toEqual([false, false, false, false, true]);
    expect(names(data, { can: { offload: true }, exact: true })).toEqual([
      'as it stands',
      'checkpointing',
      'checkpointing + offload',
    ]);
  });

  it('moves activations to host memory without checkpointing where that is not allowed or not possible', () => {
    expect(names(data, { amp: 'off', checkpointing: 'off', can: { offload: true } })).toEqual([
      'as it stands',
      'offload',
    ]);
    expect(names(data, { can: { offload: true, checkpointing: false } })).toEqual([
      'as it stands',
      'bf16',
      'bf16 + offload',
    ]);
    expect(names(data, { checkpointing: 'on', can: { offload: true, checkpointing: false } })).toEqual([]);
  });

  it('leaves out what changes numerics when it has to be exact', () => {
    expect(ladderFrom(data, { exact: true }).some((rung) => rung.amp !== 'off')).toBe(false);
    expect(names(data, { exact: true })).toEqual(['as it stands', 'checkpointing']);
  });

  it('is narrowed by fixed knobs', () => {
    expect(names(data, { amp: 'off' })).toEqual(['as it stands', 'checkpointing']);
    expect(names(data, { amp: 'fp16' })).toEqual(['fp16', 'fp16 + checkpointing']);
    expect(names(data, { checkpointing: 'on' })).toEqual(['checkpointing', 'bf16 + checkpointing']);
    expect(names(data, { amp: 'bf16', checkpointing: 'off' })).toEqual(['bf16']);
  });

  it('has no rung that the command cannot take', () => {
    expect(names(data, { can: { amp: false, checkpointing: false } })).toEqual(['as it stands']);
    expect(names(data, { amp: 'bf16', can: { amp: false } })).toEqual([]);
    expect(names(data, { amp: 'bf16', exact: true })).toEqual([]);
  });

  it('takes the half precision that the device has', () => {
    expect(names(data, { half: 'fp16' })).toContain('fp16');
  });

  it.each([
    null,
    {},
    { schema: 1, rungs: [] },
    { schema: 1, amp: 'bf16', rungs: [{ amp: 'maybe', checkpointing: true }] },
  ])('refuses a file that it cannot read: %j', (file) => {
    expect(() => ladderFrom(file)).toThrow(OomtuneError);
  });
});
