import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fillPlaceholders, placeholders, VALUE_NAMES } from '../../src/worker/command/placeholders.js';
import { config } from './project.js';

const on = config({ micro_batch: 12, accumulation: 3, world_size: 2, amp: 'bf16', checkpointing: true });
const off = config({ micro_batch: 12 });

describe('placeholders', () => {
  test('stand for their values, alone and inside a longer text', () => {
    expect(
      fillPlaceholders(
        [
          '--b={micro_batch}',
          '{accumulation}',
          'x{effective_batch}y',
          '{amp}',
          '{checkpointing}',
          '{"b": {micro_batch}}',
        ],
        on,
      ),
    ).toEqual(['--b=12', '3', 'x72y', 'bf16', '1', '{"b": 12}']);
    expect(fillPlaceholders(['{amp}', '{checkpointing}'], off)).toEqual(['off', '0']);
  });

  test('with a text stand for it when the knob is on, and take an empty argument with them when it is off', () => {
    const command = ['p', '{amp?--bf16}', '{checkpointing?--ckpt}', 'a{amp?,amp}', '', '{amp?--dtype={amp}}'];
    expect(fillPlaceholders(command, on)).toEqual(['p', '--bf16', '--ckpt', 'a,amp', '', '--dtype=bf16']);
    expect(fillPlaceholders(command, off)).toEqual(['p', 'a', '']);
  });

  test('are told by name', () => {
    expect([...placeholders(['x', '--b={micro_batch}', '{amp?--d={amp}}'])]).toEqual(['micro_batch', 'amp']);
    expect([...placeholders(['{amp?--e={effective_batch}}'])]).toEqual(['amp', 'effective_batch']);
  });

  test('doubled braces pass one pair on', () => {
    expect(placeholders(['{{micro_batch}}', '--x={{foo}}']).size).toBe(0);
    expect(fillPlaceholders(['{{micro_batch}}', '--x={{foo}}', 'a {{amp?x}} b'], on)).toEqual([
      '{micro_batch}',
      '--x={foo}',
      'a {amp?x} b',
    ]);
  });

  test("the user's own braces pass as they are", () => {
    const own = [
      '{"a": 1, "b": {"c": [1]}}',
      '{}',
      '{0}',
      '{a,b}',
      'data-{00..15}.tar',
      '{lr:3}',
      // biome-ignore-start lint/suspicious/noTemplateCurlyInString: shell and OmegaConf variables are what is tested
      '${batch_size}',
      '${micro_batch}',
      '${{ github.sha }}',
      // biome-ignore-end lint/suspicious/noTemplateCurlyInString: as above
      '{epoch}-{val_loss:.2f}',
      'runs/{name}/{epoch:02d}.ckpt',
      "print(f'{x} {y!r}')",
      '{% if x %}{{ bos_token }}{{bos_token}}{% endif %}',
      'awk {print}; x',
      '{',
      '}',
      '{ micro_batch }',
      'params={map}.json',
      '{micro_batch:3}',
    ];
    expect(placeholders(own).size).toBe(0);
    expect(fillPlaceholders(own, on)).toEqual(own);
  });

  test('that do not exist are an error with the known ones and the way round', () => {
    for (const wrong of [
      '{batch}',
      '--batch-size={batch_size}',
      'batch={b}',
      '-b{mb}',
      '{micro_batchs}',
      '{micro-batch}',
      '{MICRO_BATCH}',
      'runs/{mirco_batch}/x',
      'b-{micro_batch}-{acumulation}.ckpt',
      '{fp16?--fp16}',
      '{accumulation?--acc}',
      'x {micro_batch?--b} y',
    ]) {
      expect(() => placeholders(['python', 'train.py', wrong]), wrong).toThrowError(
        expect.objectContaining({
          code: 'OOMTUNE_BAD_PLACEHOLDER',
          remedy: expect.stringMatching(/\{micro_batch\}.*double/s),
        }),
      );
    }
    expect(() => placeholders(['{micro_batc}'])).toThrow('did you mean {micro_batch}?');
  });

  test('cut in two by a space are told', () => {
    expect(() => placeholders(['{amp?--dtype', 'bf16}'])).toThrowError(
      expect.objectContaining({ code: 'OOMTUNE_BAD_PLACEHOLDER', message: expect.stringContaining('never closed') }),
    );
  });

  test('never change any other text', () => {
    const text = fc.string({
      unit: fc.constantFrom('a', '-', '=', ' ', '"', ':', '?', '$', '%', '/', '0', ',', '.', '\n'),
    });
    fc.assert(
      fc.property(fc.array(fc.tuple(text, fc.constantFrom('', ...VALUE_NAMES), text)), (parts) => {
        const command = parts.map(([a, name, b]) => (name ? `${a.replace(/\$+$/, '')}{${name}}${b}` : a + b));
        const values = { micro_batch: '12', accumulation: '3', effective_batch: '72', amp: 'bf16', checkpointing: '1' };
        const expected = parts.map(([a, name, b]) => (name ? a.replace(/\$+$/, '') + values[name] + b : a + b));
        expect(fillPlaceholders(command, on)).toEqual(expected);
      }),
    );
  });

  test('text without a well-formed name in braces comes out byte for byte', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), (raw) => {
        const command = raw.map((element) => element.replace(/\{(?=[A-Za-z_])/g, '{ '));
        expect(placeholders(command).size).toBe(0);
        expect(fillPlaceholders(command, on)).toEqual(command);
      }),
    );
  });
});
