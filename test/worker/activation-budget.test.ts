import { existsSync } from 'node:fs';
import { expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { workbench } from './harness.js';

const python = process.env.OOMTUNE_TEST_FRAMEWORKS ?? '';
// The compiler of the CPU device writes C++.
const missing = python === '' || !['/usr/bin/g++', '/usr/local/bin/g++'].some((path) => existsSync(path));
if (missing) process.stderr.write('SKIPPED: a compiled model, which needs OOMTUNE_TEST_FRAMEWORKS and g++\n');

it.skipIf(missing)(
  'has a compiled model keep fewer activations where it fits in no other way, and runs it so',
  async () => {
    // By itself it takes 290 MiB, and 226 with 0.7 of what it keeps.
    const { request, deps } = workbench('run', [python, 'compiled.py'], {
      ...{ budget: '240MiB', exact: true, checkpointing: 'off', accumulation: 'off', timeoutSeconds: 600 },
    });
    const report = await runJob(request, deps);
    expect(report, JSON.stringify(report)).toMatchObject({ outcome: 'succeeded', exit_code: 0 });
    expect(report.config).toMatchObject({ micro_batch: 16384, amp: 'off', checkpointing: false });
    expect(report.config?.activation_memory_budget).toMatch(/^0\.[753]$/);
    expect(report.devices[0]?.peak_bytes).toBeLessThanOrEqual(240 * 1024 ** 2);
  },
  600_000,
);
