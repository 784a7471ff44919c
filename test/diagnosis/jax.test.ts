import { expect, it } from 'vitest';
import { diagnose } from '../../src/worker/diagnosis/index.js';

it("reads JAX's error of a computation that could not be started for want of memory as that", async () => {
  const start = 'Traceback (most recent call last):\n  File "train.py", line 284, in <module>\n    app.run(main)\n';
  const said =
    'jax.errors.JaxRuntimeError: INTERNAL: Error dispatching computation: Error dispatching computation: Out of memory allocating 457743208 bytes.\n';
  const found = await diagnose({ log: [Buffer.from(start + said)], exitCode: 1 });
  expect(found.class).toBe('device_oom');
});
