import { describe, expect, it } from 'vitest';
import { diagnose, renderDiagnosis } from '../../src/worker/diagnosis/index.js';
import { CORPUS, judgeCase } from './corpus.js';

const LOG =
  'Traceback (most recent call last):\n  File "t.py", line 1, in train\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 2.00 GiB is free. Process 1234 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 12.00 GiB memory in use.\n';

describe('a diagnosis for a person', () => {
  it('shows the verdict, the line, who holds the memory, and what helps', async () => {
    const text = renderDiagnosis(await diagnose({ log: [Buffer.from(LOG)], exitCode: 1 }), { color: false, width: 72 });
    expect(text).toContain('device_oom: out of device memory, in phase train');
    expect(text).toContain('line 4: torch.OutOfMemoryError');
    expect(text).toContain(`│${'█'.repeat(29)}${'▒'.repeat(24)}${'░'.repeat(5)}│${'▶'.repeat(5)}`);
    expect(text).toContain('total 24 GiB █ this process 12 GiB ▒ others 10 GiB ░ free 2 GiB\n  ▶ asked 2 GiB');
    expect(text).toContain('pid 1234: 10 GiB');
    expect(text).toContain('What helps: Wait until the other processes have ended');
    expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(74);
  });

  it('bears colours only where they are wanted', async () => {
    const d = await diagnose({ log: [Buffer.from(LOG)], exitCode: 1 });
    expect(renderDiagnosis(d, { color: true, width: 80 })).toContain('\u001b[31m');
    expect(renderDiagnosis(d, { color: false, width: 80 })).not.toContain('\u001b');
  });

  it('says so when it is not certain', async () => {
    const d = await diagnose({ log: [Buffer.from('RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED\n')] });
    expect(renderDiagnosis(d, { color: false, width: 80 })).toContain('(not certain)');
  });

  it('lets nothing of a log steer the terminal', async () => {
    const evil = 'ValueError: \u001b]0;owned\u0007 \u009b31m \u202e reversed\n';
    const d = await diagnose({ log: [Buffer.from(evil)], exitCode: 1 });
    expect(renderDiagnosis(d, { color: false, width: 80 }).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });

  it.each([30, 80, 400])('of any log keeps to a width of %i', async (width) => {
    for (const { expected, log } of CORPUS.slice(0, 60)) {
      const [, ...text] = renderDiagnosis(await judgeCase(expected, log), { color: false, width }).split('\n');
      const limit = Math.max(40, Math.min(width, 120)) + 2;
      expect(Math.max(...text.map((line) => [...line].length))).toBeLessThanOrEqual(limit);
    }
  });
});
