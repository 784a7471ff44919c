import { z } from 'zod';

/** A condition on version or script; all parts must hold. An unknown version is the newest: `since` holds, `before` does not. */
const When = z.strictObject({
  /** Distribution name (or several, `|` between them: the first installed), with `since` (inclusive) and `before` (exclusive). */
  package: z.string().optional(),
  since: z.string().optional(),
  before: z.string().optional(),
  /** Regular expressions on the script's text; a script that cannot be read passes `script` and `script_not`. */
  script: z.string().optional(),
  script_not: z.string().optional(),
  /** Regular expressions on the program's own arguments, joined by single spaces. */
  arguments: z.string().optional(),
  arguments_not: z.string().optional(),
  /** Source files (in the working folder or the script's, else among the installed packages) whose text decides; without any, `assumed`. */
  source: z
    .strictObject({
      files: z.array(z.string()).min(1),
      text: z.string().optional(),
      not: z.string().optional(),
      assumed: z.boolean(),
    })
    .optional(),
});
export type When = z.infer<typeof When>;

/** One of these must match; within one, all parts. */
const Recognise = z.strictObject({
  /** Names of script files; `*` stands for any part of a name. */
  script: z.array(z.string()).optional(),
  module: z.array(z.string()).optional(),
  console: z.array(z.string()).optional(),
  /** First own argument that is no option: `train`. */
  verb: z.array(z.string()).optional(),
  /** A file that stands beside the script. */
  beside: z.array(z.string()).optional(),
  /** Regular expression on the script's text. An unreadable script matches only where `unread: true`. */
  text: z.string().optional(),
  unread: z.boolean().optional(),
  /** Regular expression on the program's own arguments, joined by single spaces. */
  arguments: z.string().optional(),
});
export type Recognise = z.infer<typeof Recognise>;

/** A configuration file named by an argument or by another file. */
const FileRule = z.strictObject({
  /** Options whose value is the path. */
  flags: z.array(z.string()).optional(),
  keys: z.array(z.string()).optional(),
  /** The first argument that is no option and ends in one of these. `only`: and there is no other argument. */
  positional: z.array(z.string()).optional(),
  only: z.boolean().optional(),
  /** A key in another file. */
  within: z.strictObject({ file: z.string(), path: z.string() }).optional(),
  /** The script itself: its module-level assignments. */
  script: z.boolean().optional(),
  /** Environment variable that names it. */
  env: z.string().optional(),
  /** `patch`: knobs go into a private copy. `read`: it is only read, the knobs go to argv, which wins. */
  mode: z.enum(['patch', 'read']),
  /** `position`: of file and flag the later one on the command line wins. `below`: the flag always wins. */
  precedence: z.enum(['position', 'below']).default('below'),
  when: When.optional(),
});
export type FileRule = z.infer<typeof FileRule>;

const OptionRule = z.strictObject({
  /** Spellings; the first is the one that is added. `-` and `_` within a name are not told apart where `dashes: any`. */
  flags: z.array(z.string()).optional(),
  dashes: z.enum(['exact', 'any']).default('exact'),
  /** `key=value` spellings, also with Hydra's `+` and `++` in front. */
  keys: z.array(z.string()).optional(),
  /** `name:value` words, as tyro's subcommands are written. They stay last. */
  words: z.array(z.string()).optional(),
  /** Hydra lists: written `[4]`, read with and without brackets. */
  brackets: z.boolean().default(false),
  /** Path of the key, by file. */
  files: z.record(z.string(), z.union([z.string(), z.array(z.string()).min(1)])).optional(),
  takes: z.enum(['value', 'nothing', 'boolean']).default('value'),
  /** How a flag that is added is joined to its value. */
  join: z.enum(['space', 'equals']).default('space'),
  /** Where it goes if it is nowhere yet: the first of these that the command has. Empty: it is only changed, never added. */
  add: z.array(z.enum(['file', 'flag', 'key', 'word'])).default(['file', 'flag', 'key', 'word']),
  /** How a boolean is spelt in argv. */
  yes: z.string().default('True'),
  no: z.string().default('False'),
  when: When.optional(),
});
export type OptionRule = z.infer<typeof OptionRule>;

const Value = z.union([z.string(), z.number(), z.boolean(), z.null()]);
/** null: absent (or false). true and false: given. A list: the first is written, all are understood. */
const Setting = z.union([Value, z.array(Value).min(1)]);
export type Setting = z.infer<typeof Setting>;
const Cases = z.record(z.string(), z.record(z.string(), Setting));

const Count = z.strictObject({
  option: z.string(),
  /**
   * `device`: per device. `global`: over all devices. For accumulation only: `effective`: samples per optimizer step over all
   * devices; `rank`: per optimizer step and device.
   */
  scope: z.enum(['device', 'global', 'effective', 'rank']).default('device'),
  /** What the entry point takes when nothing is said; null: not to be told. */
  default: z.number().nullable().default(null),
  unit: z.enum(['samples', 'tokens']).optional(),
  when: When.optional(),
});
export type Count = z.infer<typeof Count>;

const Switch = z.strictObject({
  cases: Cases,
  default: z.string(),
  /** Only read: changing it would need more than a flag. */
  fixed: z.boolean().default(false),
  when: When.optional(),
});
export type Switch = z.infer<typeof Switch>;

const list = <T extends z.ZodType>(one: T) => z.union([one, z.array(one)]).optional();

/** What presets are recognised by. */
const outline = {
  name: z.string().regex(/^[a-z0-9-]+$/),
  /** Higher first where several match. */
  priority: z.number().default(0),
  recognise: z.array(Recognise).min(1),
};
export const OutlineSchema = z.object(outline);
export type Outline = z.infer<typeof OutlineSchema>;

export const PresetSchema = z.strictObject({
  ...outline,
  title: z.string(),
  files: z.record(z.string(), FileRule).default({}),
  /** Variants of an option: the first whose `when` holds. */
  options: z.record(z.string(), z.union([OptionRule, z.array(OptionRule).min(1)])),
  knobs: z.strictObject({
    /** Variants: the first whose option is there (or can be added) and whose `when` holds. */
    micro_batch: list(Count),
    accumulation: list(Count),
    amp: list(Switch),
    checkpointing: list(Switch),
  }),
  /** Options that have to agree with the knobs: written wherever the command has them with a value of their own (not "auto"). */
  mirror: z
    .strictObject({
      micro_batch: z.array(z.string()).optional(),
      accumulation: z.array(z.string()).optional(),
      effective_batch: z.array(z.string()).optional(),
      bf16: z.array(z.string()).optional(),
      fp16: z.array(z.string()).optional(),
    })
    .default({}),
  /** Where the entry point is told how many devices to use: a count, or a list of them (`0,1`). */
  world: z
    .strictObject({
      option: z.string().optional(),
      kind: z.enum(['count', 'list']).default('count'),
      env: z.string().optional(),
      default: z.number().optional(),
    })
    .optional(),
  /** Options whose product is the number of devices that share one sample (tensor, pipeline, context parallelism). */
  shared_by: z.array(z.string()).default([]),
  /** Settings that would defeat a search (the entry point's own batch finder): written where the command has them. */
  neutral: z.record(z.string(), Setting).default({}),
  /** Where this holds, a launch resumes from the newest checkpoint. Absent: unknown. */
  resumes: When.optional(),
  /** The command line ends in tyro subcommands (`name:value`): flags go before them. */
  subcommands: z.boolean().default(false),
  notes: z.array(z.strictObject({ text: z.string(), when: When.optional() })).default([]),
  /** How batches cut by the entry point's own flags differ besides rounding; a note on each such run. */
  differs: z.string().optional(),
  /** `run` leaves the flags of batch and accumulation as they are, and the hook cuts the batches, where it can: what the flags cut differs. */
  whole_batches: z.boolean().default(false),
});
export type Preset = z.infer<typeof PresetSchema>;
