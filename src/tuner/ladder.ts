import { z } from 'zod';
import { OomtuneError } from '../common/errors.js';
import { complaint } from '../contract/fields.js';
import {
  ALLOWED_KNOBS,
  type AllowedKnob,
  type Amp,
  type HookKnob,
  part,
  type Rung,
  sameRung,
} from '../contract/rung.js';

/** What config/ladder.yaml has to say. `amp: on` stands for the data type that the options or the file name. */
const Ladder = z.object({
  schema: z.literal(1),
  rungs: z
    .object({
      amp: z.enum(['off', 'on']),
      checkpointing: z.boolean(),
      offload: z.boolean().default(false),
      offloaded_part: part.default(''),
      chunked_loss: z.boolean().default(false),
      activation_memory_budget: part.default(''),
      optimizer_on_host: z.boolean().default(false),
      optimizer_8bit: z.boolean().default(false),
      bf16_weights: z.boolean().default(false),
      changes_numerics: z.boolean().default(false),
    })
    .array()
    .min(1),
  amp: z.enum(['bf16', 'fp16']),
});

/** What narrows the ladder for one job. */
interface LadderOptions {
  /** `auto`: every rung; anything else fixes the knob. */
  amp?: 'auto' | Amp;
  checkpointing?: 'auto' | 'on' | 'off';
  /** Nothing that changes numerics. */
  exact?: boolean;
  /** The knobs that the command's hook, flags or placeholders can set; other knobs make no rung. */
  can?: {
    [knob in 'amp' | 'checkpointing' | HookKnob]?: boolean | number;
  };
  /** The data type of `--amp auto` on this device: `fp16` where it has no bf16. */
  half?: 'bf16' | 'fp16';
}

/**
 * The rungs that a job may use, in the order of `data` (the parsed config/ladder.yaml). Empty when the options contradict
 * each other (`exact` with a fixed amp) or fix a knob that the command cannot take. Throws OOMTUNE_INTERNAL where the file is malformed.
 */
export function ladderFrom(data: unknown, options: LadderOptions = {}): Rung[] {
  const read = Ladder.safeParse(data);
  if (!read.success) {
    const why = `config/ladder.yaml is malformed at ${complaint(read.error, 'its top')}.`;
    throw new OomtuneError('OOMTUNE_INTERNAL', why, 'Restore the file from the package.');
  }
  const { rungs, amp: half } = read.data;
  const { amp = 'auto', checkpointing = 'auto', exact = false, can = {} } = options;
  const type = amp === 'bf16' || amp === 'fp16' ? amp : (options.half ?? half);
  const checkpoints = checkpointing !== 'off' && can.checkpointing !== false;
  const possible = rungs.map((entry) => ({
    ...entry,
    // What frees other memory than activations, and the last resorts, have every other allowed knob on as well.
    checkpointing: entry.checkpointing && (checkpoints || !doesWithout(entry)),
    chunked_loss: entry.chunked_loss && can.chunked_loss === true,
    activation_memory_budget: can.activation_memory_budget === true ? entry.activation_memory_budget : '',
    optimizer_on_host: entry.optimizer_on_host && can.optimizer_on_host === true,
  }));
  const allowed = possible.filter((entry) => {
    if (amp !== 'auto' && (amp === 'off') !== (entry.amp === 'off')) return false;
    if (checkpointing !== 'auto' && (checkpointing === 'on') !== entry.checkpointing) return false;
    if (exact && (entry.changes_numerics || entry.amp === 'on')) return false;
    if (entry.amp === 'on' && can.amp === false) return false;
    if (entry.checkpointing && can.checkpointing === false) return false;
    if (ALLOWED_KNOBS.some((knob) => entry[knob] && can[knob] !== true)) return false;
    if (entry.bf16_weights && type !== 'bf16') return false;
    // Checkpointing frees more and costs less (bench/results/rungs.md).
    if (entry.offloaded_part && (can.offloaded_part !== true || checkpoints)) return false;
    return !entry.offload || can.offload === true;
  });
  // A loss in chunks is on only where it is needed, too: the first rung is without.
  const [first] = allowed;
  if (first?.chunked_loss) allowed.unshift({ ...first, chunked_loss: false });
  // Offload of all activations comes last, and once.
  const isResort = (entry: (typeof allowed)[number]): boolean => entry.offload && !entry.offloaded_part;
  const resort = allowed.filter(isResort).at(-1);
  const ladder = [...allowed.filter((entry) => !isResort(entry)), ...(resort ? [resort] : [])].map((entry) => ({
    amp: entry.amp === 'off' ? ('off' as const) : type,
    checkpointing: entry.checkpointing,
    // Which of the blocks is known once all have been.
    checkpointed_blocks: '',
    offload: entry.offload,
    offloaded_part: entry.offloaded_part,
    chunked_loss: entry.chunked_loss,
    activation_memory_budget: entry.activation_memory_budget,
    optimizer_on_host: entry.optimizer_on_host,
    optimizer_8bit: entry.optimizer_8bit,
    bf16_weights: entry.bf16_weights,
  }));
  return ladder.filter((entry, at) => ladder.findIndex((other) => sameRung(entry, other)) === at);
}

const doesWithout = (entry: { offload: boolean; optimizer_on_host: boolean } & { [knob in AllowedKnob]: boolean }) =>
  entry.offload || entry.optimizer_on_host || ALLOWED_KNOBS.some((knob) => entry[knob]);
