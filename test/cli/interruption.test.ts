import { getMaxListeners } from 'node:events';
import { expect, it } from 'vitest';
import { Interruption } from '../../src/cli/interruption.js';
import { createOutput } from '../../src/cli/output.js';

it('may be waited for by as many as there are jobs, without a warning of Node on stderr', () => {
  const interruption = new Interruption(createOutput(false));
  try {
    expect(getMaxListeners(interruption.signal)).toBe(0);
  } finally {
    interruption.close();
  }
});
