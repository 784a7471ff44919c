import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/common/config.js';
import { hookMessage } from '../../src/contract/hook.js';
import { rungName } from '../../src/contract/rung.js';
import { allowedRungs } from '../../src/worker/search/constraints.js';
import type { Target } from '../../src/worker/target.js';

const options = { amp: 'auto', checkpointing: 'off', exact: false } as const;

/** A command that leaves its knobs to the hook, or has a flag for amp that takes these types. */
function target(amp: 'hook' | ('off' | 'bf16' | 'fp16')[]): Target {
  const supports = { amp: amp === 'hook' ? ['off'] : amp, checkpointing: [false] };
  return {
    ladder: readConfig(join(import.meta.dirname, '../../config/ladder.yaml')),
    baseRung: { amp: 'off', checkpointing: false },
    plan: { supports },
    carrier: (knob: string) => (amp === 'hook' ? 'hook' : knob === 'amp' ? 'argv' : 'none'),
  } as unknown as Target;
}

/** The `loop` message of a hook, as it is read. */
function can(changes: object) {
  const message = hookMessage.parse({
    t: 'loop',
    own_batch: 8,
    own_accumulation: null,
    can: { batch: true, accumulation: true, amp: true, checkpointing: true, ...changes },
  });
  return message.t === 'loop' ? message.can : null;
}

describe('--amp auto', () => {
  const names = (...args: Parameters<typeof allowedRungs>) => allowedRungs(...args).map(rungName);

  it('takes bf16 where the device has it', () => {
    expect(names(target('hook'), options, can({ fp16: true }))).toEqual(['as it stands', 'bf16']);
    expect(names(target('hook'), options, null)).toEqual(['as it stands', 'bf16']);
  });

  it('takes fp16 where it has not', () => {
    const old = can({ amp: false, fp16: true });
    expect(names(target('hook'), options, old)).toEqual(['as it stands', 'fp16']);
    expect(names(target(['off', 'bf16', 'fp16']), options, old)).toEqual(['as it stands', 'fp16']);
    expect(names(target(['off', 'bf16']), options, old)).toEqual(['as it stands', 'bf16']);
  });

  it('takes neither where the model has no single precision', () => {
    expect(names(target('hook'), options, can({ amp: false }))).toEqual(['as it stands']);
  });
});
