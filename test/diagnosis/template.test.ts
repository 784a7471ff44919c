import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonical } from '../../src/worker/diagnosis/canonical.js';
import { compileTemplate, matchTemplate } from '../../src/worker/diagnosis/template.js';

function read(template: string, text: string): number | null | undefined {
  return matchTemplate(compileTemplate(template), canonical(text))?.values[0];
}

describe('a template', () => {
  it.each([
    ['tried to allocate {size}', 'Tried to allocate 20.00 MiB (GPU 0', 20 * 2 ** 20],
    ['tried to allocate {size}', 'Tried to allo\ncate 1\n.50 G\niB.', 1.5 * 2 ** 30],
    ['{size} free;', '15.78 GiB total capacity; 61.19 MiB free; x', Math.round(61.19 * 2 ** 20)],
    ['of which {size} is free', 'of which 0 bytes is free.', 0],
    ['{size} is free', 'of which 512.00 KiB is free', 512 * 1024],
    ['allocating {bytes}', 'Out of memory allocating 1,000 bytes (', 1000],
    ['allocating {bytes}', 'allocating 1,073,741,824 bytes', 2 ** 30],
    ['requested: {bytes}', 'Requested: 33554432\n- next', 33554432],
    ['allocating {mib} mib', 'allocating 9866.00 MiB on device 1', 9866 * 2 ** 20],
    ['(gpu {int};', '(GPU 3; 15.78 GiB total', 3],
    [
      'failed to allocate {*}({bytes} bytes) from',
      'failed to allocate 17.79G (19104890880 bytes) from device',
      19104890880,
    ],
    ['calloc {bytes}', 'Failed to CUDA calloc async 4 bytes', undefined],
    ['allowed {size}', 'allowed 17179869184.00 GiB', null],
    ['allocate {bytes}', 'allocate 40000000000000000 bytes.', null],
    ['tried to allocate {size}', 'tried to allocate 12', undefined],
    ['{int} left', 'gpu 0, 100 left', 100],
    ['uses {bytes}', 'uses 1.34e+10 bytes', 1.34e10],
  ])('%s reads "%s"', (template, text, wanted) => {
    expect(read(template, text)).toBe(wanted);
  });

  it.each(['{size}', 'no place', '{size} {size} x', 'x {*}', 'a {nothing}'])('"%s" is refused', (source) => {
    expect(() => compileTemplate(source)).toThrow(RangeError);
  });

  it('reads back any size that is written as torch writes it', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 99_999_999 }), fc.constantFrom('KiB', 'MiB', 'GiB'), (hundredths, unit) => {
        const factor = 1024 ** (['KiB', 'MiB', 'GiB'].indexOf(unit) + 1);
        const text = `Tried to allocate ${(hundredths / 100).toFixed(2)} ${unit}. GPU 0`;
        expect(read('tried to allocate {size}', text)).toBe(Math.round((hundredths / 100) * factor));
      }),
    );
  });
});
