import type { Amp } from '../../contract/rung.js';
import type { Preset } from '../presets/schema.js';

export type Knob = 'micro_batch' | 'accumulation' | 'amp' | 'checkpointing';

/** Who brings a knob to the job: a placeholder, a preset, the script itself (`env`, `import oomtune`), the hook, nobody. */
export type Carrier = 'argv-placeholder' | 'preset' | 'env' | 'hook' | 'none';

/** What the command asks for by itself, per device; null: not said, or not to be told. */
export interface OwnValues {
  microBatch: number | null;
  accumulation: number | null;
  amp: Amp | null;
  checkpointing: boolean | null;
  worldSize: number | null;
}

/** The program at the end of the wrappers, and where its own arguments start. */
export interface Program {
  /** `python`: a script file, a module or code; `shell`: a shell script; `command`: anything else. */
  kind: 'python' | 'shell' | 'command';
  /** Index in the command of the Python interpreter; null when a launcher or shebang brings it. */
  interpreter: { index: number | null; path: string } | null;
  /** The script file, as written and where it stands; null for modules, code and other programs. */
  script: { index: number; path: string; absolute: string; stem: string } | null;
  /** After `-m`. */
  module: string | null;
  /** After `-c`, or on stdin where that can be read before it runs. */
  code: string | null;
  /** Python reads its code from stdin: `python - < train.py`. */
  piped: boolean;
  /** The program's own name when it is neither script nor module: `yolo`. */
  name: string | null;
  /** Its executable as a launch would find it: an absolute path, or a name for PATH. */
  executable: string | null;
  /** Index of its first own argument. */
  argsStart: number;
  /** Wrappers in front of it, outermost first. */
  wrappers: string[];
  /** Variables that `env A=b` in front of it sets, and `env -u A` removes (undefined). */
  env: NodeJS.ProcessEnv;
  /** `env -i` in front of it: it sees no others. */
  clean: boolean;
  /** Processes that the wrappers start, as they say or a variable does; null: they do not say. */
  worldSize: number | null;
  /** Those of them on one machine. */
  processesHere: number | null;
  /** Machines that they start them on, in the same way. */
  nodes: number | null;
  /** The option, variable or file that says so, and the launcher's words for one machine. */
  nodesBy: string | null;
  oneNode: string | null;
  /** `-I`, `-E` or `-S`: Python options that keep the hook out; null: none. */
  isolated: string | null;
}

/** A configuration file that the command names and a preset knows. */
export interface PlanFile {
  name: string;
  /** As written in the command. */
  written: string;
  absolute: string;
  format: 'yaml' | 'json' | 'toml' | 'python';
  /** Index in the command of the argument that names it; null when another file names it. */
  index: number | null;
  /** The file and the key in it that name this one. */
  within: { file: string; path: string } | null;
  text: string;
}

/** A command, understood. Made once by `recognise`; `fill` makes argv and files from it for any knobs. */
export interface CommandPlan {
  command: readonly string[];
  cwd: string;
  carriers: Record<Knob, Carrier>;
  /** Name of the preset in use; null: none. */
  preset: string | null;
  /** The preset's own title, for a person. */
  presetTitle: string | null;
  own: OwnValues;
  /** What the carriers can express. A knob that nobody carries supports only what the command has by itself. */
  supports: { amp: Amp[]; checkpointing: boolean[]; accumulation: boolean };
  /** What the micro-batch counts: some entry points batch by tokens. */
  unit: 'samples' | 'tokens';
  /** Smallest micro-batch that makes sense (tokens of one sample); null: 1. */
  minBatch: number | null;
  program: Program;
  /** True: a Python program that (as far as its text tells) uses torch. False: surely not Python. null: cannot be told. */
  isPythonTorch: boolean | null;
  worldSize: number | null;
  /** Those of them on one machine. */
  processesHere: number | null;
  /** Machines that its launcher spreads the processes over, as far as it is known. */
  nodes: number;
  /** Whether another launch goes on from the newest checkpoint, as the preset knows; null: no preset knows. */
  resumes: boolean | null;
  /** Sentences for a person: what was assumed, what stands in the way. */
  notes: string[];
  /** For `fill` and `digest`; of no use to others. */
  readonly inner: {
    preset: Preset | null;
    files: PlanFile[];
    scriptText: string | null;
    env: NodeJS.ProcessEnv;
  };
}

export interface FilledCommand {
  argv: string[];
  /** OOMTUNE_MICRO_BATCH, OOMTUNE_ACCUMULATION, OOMTUNE_EFFECTIVE_BATCH, OOMTUNE_AMP, OOMTUNE_CHECKPOINTING (and OOMTUNE_OFFLOAD). */
  env: Record<string, string>;
  /** Patched copies that were written (0600). */
  files: string[];
}
