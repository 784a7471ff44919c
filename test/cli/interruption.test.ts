import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { Interruption } from '../../src/cli/interruption.js';
import { createOutput } from '../../src/cli/output.js';

it('may be waited for by as many as there are jobs, without a warning of Node on stderr', async () => {
  const warnings: string[] = [];
  const note = ({ name }: Error) => warnings.push(name);
  process.on('warning', note);
  const interruption = new Interruption(createOutput(false));
  try {
    for (let job = 0; job < 20; job += 1) interruption.signal.addEventListener('abort', () => {});
    await setImmediate();
    expect(warnings).toEqual([]);
  } finally {
    interruption.close();
    process.off('warning', note);
  }
});
