import { describe, expect, it } from 'vitest';
import { rungTable } from '../../src/cli/rung-table.js';
import type { ProbeRecord } from '../../src/contract/measurement.js';
import { recommendation } from '../store/samples.js';

const plain = (_: string, text: string): string => text;

const GIB = 2 ** 30;
const [sample] = recommendation().probes;
const probe = (more: Partial<ProbeRecord>): ProbeRecord => ({ ...(sample as ProbeRecord), outcome: 'fit', ...more });

describe('what the rungs of a search came to', () => {
  const own = { amp: 'off', checkpointing: false, offload: false } as const;
  const checkpointed = { ...own, checkpointing: true };
  const probes = [
    probe({ ...own, micro_batch: 4, peak_bytes: 8 * GIB, samples_per_s: 40 }),
    probe({ ...own, micro_batch: 9, peak_bytes: null, outcome: 'device_oom', samples_per_s: null }),
    probe({ ...own, micro_batch: 8, peak_bytes: 15 * GIB, samples_per_s: 55.55 }),
    probe({ ...checkpointed, micro_batch: 64, peak_bytes: 14 * GIB, samples_per_s: 41.2 }),
    probe({ ...checkpointed, micro_batch: 80, peak_bytes: 15.5 * GIB, samples_per_s: null }),
  ];

  it('is the largest size that ran, the smallest that did not, the peak and the speed of each', () => {
    const [, head, ...rows] = rungTable(probes, plain).map((line) => line.trim().split(/ {2,}/));
    expect(head).toEqual(['RUNG', 'LARGEST', 'TOO LARGE', 'PEAK', 'SAMPLES/S']);
    expect(rows).toEqual([
      ['as it stands', '8', '9', '15 GiB', '55.5'],
      ['checkpointing', '80', '-', '15.5 GiB', '41.2'],
    ]);
  });

  it('is not shown where there was one rung', () => {
    expect(rungTable(probes.slice(0, 3), plain)).toEqual([]);
  });
});
