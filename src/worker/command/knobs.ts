import type { Amp, Config } from '../../contract/rung.js';
import { holds } from '../presets/match.js';
import type { Count, Switch } from '../presets/schema.js';
import type { Editor } from './editor.js';
import { seenBehind } from './program.js';
import type { Knob, OwnValues } from './types.js';

export const KNOBS: readonly Knob[] = ['micro_batch', 'accumulation', 'amp', 'checkpointing'];

/** The variant of a counted knob that the command uses: one that it already gives comes before one that could be added. */
export function countFor(editor: Editor, knob: 'micro_batch' | 'accumulation'): Count | null {
  const variants = [editor.preset.knobs[knob] ?? []].flat().filter((count) => holds(count.when, editor.scene));
  return (
    variants.find((count) => editor.present(count.option)) ??
    variants.find((count) => editor.writable(count.option)) ??
    null
  );
}

/** The variant of a switched knob all of whose options can be written here; null: none. */
export function switchFor(editor: Editor, knob: 'amp' | 'checkpointing'): Switch | null {
  const variants = [editor.preset.knobs[knob] ?? []].flat().filter((item) => holds(item.when, editor.scene));
  return variants.find((item) => item.fixed || casesOf(editor, item).length > 1) ?? null;
}

/** The cases of a switch that can be brought about here: each setting is "absent" or its option can be written. */
function casesOf(editor: Editor, item: Switch): string[] {
  return Object.entries(item.cases)
    .filter(([, settings]) =>
      Object.entries(settings).every(([option, setting]) => {
        if (editor.rule(option) === null) return [setting].flat().includes(null);
        return [setting].flat()[0] === null || editor.writable(option) || editor.matches(option, setting);
      }),
    )
    .map(([name]) => name);
}

function currentCase(editor: Editor, item: Switch): string {
  for (const [name, settings] of Object.entries(item.cases)) {
    if (Object.entries(settings).every(([option, setting]) => editor.matches(option, setting))) return name;
  }
  return item.default;
}

/** The default that the script's own argparse gives one of these flags; null: not to be told. */
function scriptDefault(editor: Editor, option: string): number | null {
  const text = editor.scene.scriptText;
  if (!text) return null;
  for (const flag of editor.rule(option)?.flags ?? []) {
    if (!flag.startsWith('--')) continue;
    const at = text.search(new RegExp(`["']${flag.replace(/[-.]/g, '\\$&')}["']`));
    if (at < 0) continue;
    // Up to the next option, so as not to take that one's default.
    const call = text.slice(at).split(/add_argument\s*\(/, 1)[0] as string;
    const match = /\bdefault\s*=\s*(\d+)\b/.exec(call);
    if (match) return Number(match[1]);
  }
  return null;
}

function readCount(editor: Editor, count: Count): number | null {
  const raw = editor.read(count.option);
  if (raw === undefined) return scriptDefault(editor, count.option) ?? count.default;
  const value = Number(raw);
  return Number.isInteger(value) && value > 0 ? value : null;
}

/** Devices that the entry point is told to use; null: it does not say. */
export function readWorld(editor: Editor): number | null {
  const { world } = editor.preset;
  if (!world) return null;
  const option = world.option === undefined ? undefined : editor.read(world.option);
  const { program, env } = editor.scene;
  const value = option ?? (world.env === undefined ? undefined : seenBehind(program, env)[world.env]);
  if (value === undefined || value === null || typeof value === 'boolean') return world.default ?? null;
  const list = String(value).replace(/[[\]\s]/g, '');
  if (/^\d+(?:,\d+)+,?$/.test(list)) return list.split(',').filter(Boolean).length;
  if (/^\d+$/.test(list)) return world.kind === 'count' ? Number(list) || null : 1;
  return null;
}

/** Data-parallel devices: those that hold samples of their own. */
function dataParallel(editor: Editor, world: number): number {
  const shared = editor.preset.shared_by.reduce((product, option) => {
    const value = Number(editor.read(option));
    return Number.isInteger(value) && value > 1 ? product * value : product;
  }, 1);
  return Math.max(1, Math.floor(world / shared));
}

/** What the command asks for by itself, brought to one device. */
export function readOwn(editor: Editor, worldSize: number | null): OwnValues {
  const world = dataParallel(editor, worldSize ?? 1);
  const own: OwnValues = { microBatch: null, accumulation: null, amp: null, checkpointing: null, worldSize };
  const batch = countFor(editor, 'micro_batch');
  if (batch) {
    const value = readCount(editor, batch);
    own.microBatch = value === null ? null : batch.scope === 'global' ? Math.floor(value / world) || null : value;
  }
  const accumulation = countFor(editor, 'accumulation');
  if (accumulation) own.accumulation = readAccumulation(editor, accumulation, own.microBatch, world);
  const amp = switchFor(editor, 'amp');
  if (amp) own.amp = ampOf(currentCase(editor, amp));
  if (own.microBatch === null) own.microBatch = microFromEffective(editor, own.accumulation, world);
  const checkpointing = switchFor(editor, 'checkpointing');
  if (checkpointing) own.checkpointing = onOf(currentCase(editor, checkpointing));
  return own;
}

/** DeepSpeed works the micro-batch out from the other two when it is not given. */
function microFromEffective(editor: Editor, accumulation: number | null, world: number): number | null {
  for (const option of editor.preset.mirror.effective_batch ?? []) {
    const micro = Number(editor.read(option)) / ((accumulation ?? 1) * world);
    if (Number.isInteger(micro) && micro > 0) return micro;
  }
  return null;
}

function readAccumulation(editor: Editor, count: Count, micro: number | null, world: number): number | null {
  const value = readCount(editor, count);
  if (count.scope === 'device') return value;
  if (count.scope === 'global') return value === null ? null : Math.max(1, Math.floor(value / world));
  // Samples per optimizer step; nothing or -1: one micro-batch.
  if (micro === null) return null;
  const each = count.scope === 'rank' ? micro : micro * world;
  return value === null ? 1 : Math.max(1, Math.round(value / each));
}

const ampOf = (name: string): Amp | null => (name === 'off' || name === 'bf16' || name === 'fp16' ? name : null);

const onOf = (name: string): boolean | null => (name === 'on' ? true : name === 'off' ? false : null);

export function supportedAmp(editor: Editor, item: Switch): Amp[] {
  const own = ampOf(currentCase(editor, item));
  if (item.fixed) return [own ?? 'off'];
  return casesOf(editor, item).flatMap((name) => ampOf(name) ?? []);
}

export function supportedCheckpointing(editor: Editor, item: Switch): boolean[] {
  const own = onOf(currentCase(editor, item));
  if (item.fixed) return [own ?? false];
  return casesOf(editor, item).flatMap((name) => onOf(name) ?? []);
}

/** Writes those knobs that the preset carries. */
export function writeKnobs(editor: Editor, config: Config, carried: ReadonlySet<Knob>): void {
  const { micro_batch: micro, accumulation: times } = config;
  const world = dataParallel(editor, config.world_size);
  const effective = micro * times * world;
  const own = readOwn(editor, config.world_size);
  const batch = carried.has('micro_batch') ? countFor(editor, 'micro_batch') : null;
  if (batch) editor.apply(batch.option, batch.scope === 'global' ? micro * world : micro);
  const count = carried.has('accumulation') ? countFor(editor, 'accumulation') : null;
  if (count) {
    const value = { device: times, global: times * world, effective, rank: micro * times }[count.scope];
    // A default that is not mentioned stays so: an older version may not know the flag.
    const unsaid = editor.read(count.option) === undefined && count.scope === 'device' && own.accumulation === times;
    const derived =
      (count.scope === 'effective' || count.scope === 'rank') && times === own.accumulation && own.microBatch === micro;
    // Without a setting the entry point takes one micro-batch a step.
    const single =
      count.scope === 'effective' && count.default === null && times === 1 && !editor.present(count.option);
    if (!unsaid && !derived && !single) editor.apply(count.option, value);
  }
  for (const knob of ['amp', 'checkpointing'] as const) {
    const item = carried.has(knob) ? switchFor(editor, knob) : null;
    if (!item || item.fixed) continue;
    const wanted = knob === 'amp' ? config.amp : config.checkpointing ? 'on' : 'off';
    if (currentCase(editor, item) === wanted) continue;
    for (const [option, setting] of Object.entries(item.cases[wanted] ?? {})) editor.apply(option, setting);
  }
  const { mirror } = editor.preset;
  writeMirror(editor, mirror.micro_batch, micro);
  writeMirror(editor, mirror.accumulation, times);
  writeMirror(editor, mirror.effective_batch, effective);
  if (carried.has('amp')) {
    writeMirror(editor, mirror.bf16, config.amp === 'bf16');
    writeMirror(editor, mirror.fp16, config.amp === 'fp16');
  }
  for (const [option, setting] of Object.entries(editor.preset.neutral)) {
    if (editor.present(option)) editor.apply(option, setting);
  }
}

function writeMirror(editor: Editor, options: string[] | undefined, value: number | boolean): void {
  for (const option of options ?? []) {
    const current = editor.read(option);
    // "auto" follows the flags by itself.
    if (current !== undefined && editor.present(option) && !/^auto$/i.test(String(current)))
      editor.apply(option, value);
  }
}

/** Every option that a knob may be written to: what a digest leaves out. */
export function tunedOptions(editor: Editor): string[] {
  const { knobs, mirror, neutral } = editor.preset;
  const counts = [knobs.micro_batch ?? [], knobs.accumulation ?? []].flat(2).map((count) => count.option);
  const switches = [knobs.amp ?? [], knobs.checkpointing ?? []]
    .flat(2)
    .flatMap((item) => (item.fixed ? [] : Object.values(item.cases).flatMap((settings) => Object.keys(settings))));
  const mirrored = Object.values(mirror).flatMap((options) => options ?? []);
  return [...new Set([...counts, ...switches, ...mirrored, ...Object.keys(neutral)])];
}
