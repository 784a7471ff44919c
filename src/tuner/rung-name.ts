import type { Rung } from './types.js';

/** `bf16 + checkpointing`; the first rung, which turns nothing on, is `as it stands`. */
export function rungName(
  rung: Pick<Rung, 'amp' | 'checkpointing' | 'offload'> & { expandable_segments?: boolean },
): string {
  const knobs = [
    ...(rung.amp === 'off' ? [] : [rung.amp]),
    ...(rung.checkpointing ? ['checkpointing'] : []),
    ...(rung.offload ? ['offload'] : []),
    ...(rung.expandable_segments ? ['expandable segments'] : []),
  ];
  return knobs.length > 0 ? knobs.join(' + ') : 'as it stands';
}
