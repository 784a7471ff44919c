import { z } from 'zod';
import { count, text } from './fields.js';

/** A knob of the command's own: an integer that stands in it as `{name}`, such as `{seq_len}`. */
export const KNOB_NAME = /^[a-z][a-z0-9_-]{0,63}$/;
const knobName = z.string().regex(KNOB_NAME);

/** The value that a launch runs with. */
export const knobValue = z.object({ name: knobName, value: count });
export type KnobValue = z.infer<typeof knobValue>;

/** What was found of it; every value was run by a process of its own. */
export const knobAnswer = knobValue.extend({
  /** The largest that fits at all; `value` is the recommended one, the largest measured that leaves the headroom. */
  max: count,
  /** The smallest above it that was seen to fail; null: none was. */
  smallest_failing: count.nullable(),
  /** What larger values fail for: the memory, the script itself (a table of positions), or the options, which allow none. */
  bounded_by: z.enum(['memory', 'script', 'options']),
  /** The line that shows it; null: nothing failed. */
  evidence: text(65_536).nullable(),
  /** Only multiples of it were tried; null: numbers as round as 2 per cent allow. */
  multiple_of: count.nullable(),
});
export type KnobAnswer = z.infer<typeof knobAnswer>;

/** The variable that carries it besides: `OOMTUNE_KNOB_SEQ_LEN`. */
export const knobVariable = (name: string): string => `OOMTUNE_KNOB_${name.toUpperCase().replaceAll('-', '_')}`;
