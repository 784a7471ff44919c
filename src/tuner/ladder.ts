import { OomtuneError } from '../common/errors.js';
import type { Amp, Rung } from '../contract/rung.js';

/** One entry of config/ladder.yaml. `amp: on` stands for the data type that the options or the file name. */
interface LadderEntry {
  amp: 'off' | 'on';
  checkpointing: boolean;
  offload: boolean;
  changesNumerics: boolean;
}

/** What narrows the ladder for one job. */
interface LadderOptions {
  /** `auto`: every rung; anything else fixes the knob. */
  amp?: 'auto' | Amp;
  checkpointing?: 'auto' | 'on' | 'off';
  /** Nothing that changes numerics. */
  exact?: boolean;
  /** What the command (its hook, flags or placeholders) can take; a knob that nothing applies makes no rung. */
  can?: { amp?: boolean; checkpointing?: boolean; offload?: boolean };
  /** The data type of `--amp auto` on this device: `fp16` where it has no bf16. */
  half?: 'bf16' | 'fp16';
}

/**
 * The rungs that a job may use, in the order of `data` (the parsed config/ladder.yaml). Empty when the options contradict
 * each other (`exact` with a fixed amp) or fix a knob that the command cannot take.
 */
export function ladderFrom(data: unknown, options: LadderOptions = {}): Rung[] {
  const { entries, half } = readLadder(data);
  const { amp = 'auto', checkpointing = 'auto', exact = false, can = {} } = options;
  const type = amp === 'bf16' || amp === 'fp16' ? amp : (options.half ?? half);
  const checkpoints = checkpointing !== 'off' && can.checkpointing !== false;
  const possible = entries.map((entry) =>
    // The last resort has everything else turned on that is allowed.
    entry.offload ? { ...entry, checkpointing: entry.checkpointing && checkpoints } : entry,
  );
  const allowed = possible.filter((entry) => {
    if (amp !== 'auto' && (amp === 'off') !== (entry.amp === 'off')) return false;
    if (checkpointing !== 'auto' && (checkpointing === 'on') !== entry.checkpointing) return false;
    if (exact && entry.changesNumerics) return false;
    if (entry.amp === 'on' && can.amp === false) return false;
    if (entry.checkpointing && can.checkpointing === false) return false;
    return !entry.offload || can.offload === true;
  });
  // Moving activations to the host comes last, and once.
  const resort = allowed.filter((entry) => entry.offload).at(-1);
  return [...allowed.filter((entry) => !entry.offload), ...(resort ? [resort] : [])].map((entry) => ({
    amp: entry.amp === 'off' ? 'off' : type,
    checkpointing: entry.checkpointing,
    offload: entry.offload,
  }));
}

function readLadder(data: unknown): { entries: LadderEntry[]; half: 'bf16' | 'fp16' } {
  const file = data as { schema?: unknown; rungs?: unknown; amp?: unknown } | null;
  if (file?.schema !== 1 || !Array.isArray(file.rungs) || file.rungs.length === 0)
    throw badLadder('`schema: 1` and a list `rungs`');
  if (file.amp !== 'bf16' && file.amp !== 'fp16') throw badLadder('`amp` to be bf16 or fp16');
  const entries = file.rungs.map((value: unknown, index): LadderEntry => {
    const rung = value as Record<string, unknown> | null;
    if (!rung || (rung.amp !== 'off' && rung.amp !== 'on') || typeof rung.checkpointing !== 'boolean') {
      throw badLadder(`rung ${index + 1} to have \`amp\` (off or on) and \`checkpointing\` (true or false)`);
    }
    return {
      amp: rung.amp,
      checkpointing: rung.checkpointing,
      offload: rung.offload === true,
      changesNumerics: rung.changes_numerics === true || rung.amp === 'on',
    };
  });
  return { entries, half: file.amp };
}

function badLadder(expected: string): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_INTERNAL',
    `config/ladder.yaml cannot be used: expected ${expected}.`,
    'Restore the file from the package.',
  );
}
