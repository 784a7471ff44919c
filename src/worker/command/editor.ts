import { holds, type Scene } from '../presets/match.js';
import type { OptionRule, Preset, Setting } from '../presets/schema.js';
import { appendArguments, findOption, isFalsy, type Occurrence, removeOccurrences, replaceOption } from './argv.js';
import { type OpenConfig, openConfig, type Scalar } from './config-file.js';
import { locateFile } from './files.js';
import type { PlanFile } from './types.js';

/** Reads and changes a program's arguments and configuration files by a preset's options; adds what is missing. */
export class Editor {
  args: string[];
  /** Files with changes. */
  readonly edited = new Set<PlanFile>();
  readonly #open = new Map<string, OpenConfig>();
  readonly #rules = new Map<string, OptionRule | null>();

  constructor(
    readonly preset: Preset,
    readonly scene: Scene,
    readonly files: readonly PlanFile[],
  ) {
    this.args = [...scene.args];
  }

  /** The variant of an option that exists here; null: none. */
  rule(option: string): OptionRule | null {
    const known = this.#rules.get(option);
    if (known !== undefined) return known;
    const variants = this.preset.options[option];
    if (!variants) throw new TypeError(`preset ${this.preset.name} has no option ${option}`);
    const found = [variants].flat().find((variant) => holds(variant.when, this.scene));
    const rule = found ? this.#withAbbreviations(found) : null;
    this.#rules.set(option, rule);
    return rule;
  }

  /** Every spelling of an option, whether it exists here or not. */
  variants(option: string): OptionRule[] {
    return [this.preset.options[option] ?? []].flat().map((rule) => this.#withAbbreviations(rule));
  }

  /** argparse takes any unambiguous prefix of a flag (`--batch 8`). The flags in the script's text tell which are unambiguous. */
  #withAbbreviations(rule: OptionRule): OptionRule {
    const { scriptText, args } = this.scene;
    if (!scriptText || !rule.flags || !scriptText.includes('add_argument')) return rule;
    const known = new Set([...scriptText.matchAll(/["'](--[\w-]+)["']/g)].map((match) => match[1] as string));
    const short = args
      .filter((arg) => /^--\w/.test(arg))
      .map((arg) => arg.split('=', 1)[0] as string)
      .filter((name) => {
        const meant = [...known].filter((flag) => flag.startsWith(name));
        return !known.has(name) && meant.length === 1 && rule.flags?.includes(meant[0] as string);
      });
    return short.length > 0 ? { ...rule, flags: [...rule.flags, ...short] } : rule;
  }

  config(file: PlanFile): OpenConfig {
    let open = this.#open.get(file.name);
    if (!open) {
      open = openConfig(file);
      this.#open.set(file.name, open);
    }
    return open;
  }

  /** The value in force; undefined: none. A bare flag reads true. */
  read(option: string): Scalar | undefined {
    const rule = this.rule(option);
    if (!rule) return undefined;
    let best: { at: number; value: Scalar } | null = null;
    for (const { file, path } of this.#paths(rule)) {
      const value = this.config(file).get(path);
      const at = this.#rank(file);
      if (value !== undefined && (!best || at >= best.at)) best = { at, value };
    }
    for (const place of findOption(this.args, rule)) {
      if (!best || place.index > best.at) best = { at: place.index, value: place.value ?? true };
    }
    const value = best?.value;
    return rule.brackets && typeof value === 'string' ? value.replace(/^\[\s*|\s*\]$/g, '') : value;
  }

  writable(option: string): boolean {
    const rule = this.rule(option);
    return rule !== null && (this.#addition(rule) !== null || this.present(option));
  }

  /** Whether any place that can be changed gives the option. */
  present(option: string): boolean {
    const rule = this.rule(option);
    if (!rule) return false;
    if (findOption(this.args, rule).length > 0) return true;
    return this.#patched(rule).some(({ file, path }) => this.config(file).get(path) !== undefined);
  }

  matches(option: string, setting: Setting): boolean {
    const value = this.read(option);
    return [setting].flat().some((wanted) => fits(value, wanted));
  }

  /** Makes the setting hold, without a change if it does already. */
  apply(option: string, setting: Setting): void {
    if (this.matches(option, setting)) return;
    this.write(option, [setting].flat()[0] as Scalar);
  }

  /** Writes a value to every place that gives the option, or adds it. null removes it. */
  write(option: string, value: Scalar): void {
    const rule = this.rule(option);
    if (!rule) return;
    const occurrences = findOption(this.args, rule);
    const files = this.#patched(rule).filter(({ file, path }) => this.config(file).get(path) !== undefined);
    for (const { file, path } of files) this.#patch(file, path, value, rule);
    if (value === null || (value === false && rule.takes === 'nothing')) {
      this.args = removeOccurrences(this.args, occurrences);
      return;
    }
    const overruled = occurrences.length > 0 && this.#overruled(rule, occurrences);
    if (occurrences.length > 0 && !overruled) this.#replace(rule, occurrences, value);
    else if (overruled) {
      this.args = removeOccurrences(this.args, occurrences);
      this.#append(rule, value);
    } else if (files.length === 0) this.#add(rule, value);
  }

  #replace(rule: OptionRule, occurrences: Occurrence[], value: Scalar): void {
    const last = occurrences.at(-1) as Occurrence;
    if (value === true && last.value === null) return;
    if (last.value === null && rule.takes !== 'value') {
      // A bare flag cannot say no: it is removed and, where absence does not mean no, the word is added.
      this.args = removeOccurrences(this.args, occurrences);
      if (value !== false) this.#append(rule, value);
      return;
    }
    this.args = replaceOption(this.args, occurrences, spell(rule, value, last.value));
  }

  #patch(file: PlanFile, path: string, value: Scalar, rule: OptionRule): void {
    const config = this.config(file);
    const stored = value === null && rule.takes === 'boolean' ? false : value;
    if (stored === null) config.remove(path);
    else config.set(path, stored);
    this.edited.add(file);
  }

  #add(rule: OptionRule, value: Scalar): void {
    const how = this.#addition(rule);
    if (how === 'file') {
      const [target] = this.#patched(rule);
      if (target) this.#patch(target.file, target.path, value, rule);
    } else if (how) this.#append(rule, value, how);
  }

  #append(rule: OptionRule, value: Scalar, how: 'flag' | 'key' | 'word' = rule.flags ? 'flag' : 'key'): void {
    const text = spell(rule, value, null);
    if (how === 'word') {
      this.args = appendArguments(this.args, [`${rule.words?.[0]}:${text}`], false);
      return;
    }
    const flag = this.#spelling(rule);
    const more =
      how === 'key'
        ? [`${rule.keys?.[0]}=${text}`]
        : value === true
          ? [flag]
          : rule.join === 'equals'
            ? [`${flag}=${text}`]
            : [flag, text];
    this.args = appendArguments(this.args, more, this.preset.subcommands);
  }

  /** Where a file says the option at some path, the flag of that path is the one that overrides it. */
  #spelling(rule: OptionRule): string {
    for (const { file, path } of this.#paths(rule)) {
      if (this.config(file).get(path) !== undefined && rule.flags?.includes(`--${path}`)) return `--${path}`;
    }
    return rule.flags?.[0] ?? '';
  }

  #addition(rule: OptionRule): 'file' | 'flag' | 'key' | 'word' | null {
    // An entry point with one file as its only argument takes no flag either
    const onlyFile = this.files.some((file) => this.preset.files[file.name]?.only);
    for (const how of rule.add) {
      if (how === 'file' && this.#patched(rule).length > 0) return how;
      if (how === 'flag' && rule.flags && !onlyFile) return how;
      if (how === 'key' && rule.keys) return how;
      if (how === 'word' && rule.words) return how;
    }
    return null;
  }

  #paths(rule: OptionRule): { file: PlanFile; path: string }[] {
    return this.files.flatMap((file) => [rule.files?.[file.name] ?? []].flat().map((path) => ({ file, path })));
  }

  #patched(rule: OptionRule): { file: PlanFile; path: string }[] {
    return this.#paths(rule).filter(({ file }) => this.preset.files[file.name]?.mode === 'patch');
  }

  #rank(file: PlanFile): number {
    const rule = this.preset.files[file.name];
    if (rule?.precedence !== 'position') return -1;
    return locateFile(this.args, rule)?.index ?? -1;
  }

  /** Whether a file read after the flag has the same key, so that the flag must go behind it. */
  #overruled(rule: OptionRule, occurrences: Occurrence[]): boolean {
    const last = occurrences.at(-1)?.index ?? -1;
    return this.#paths(rule).some(
      ({ file, path }) => this.#rank(file) > last && this.config(file).get(path) !== undefined,
    );
  }
}

function spell(rule: OptionRule, value: Scalar, like: string | null): string {
  // Hydra's lists keep their brackets; a flag of the same option has none.
  if (rule.brackets && (like === null ? rule.keys !== undefined : like.startsWith('['))) return `[${String(value)}]`;
  if (typeof value !== 'boolean') return String(value);
  // `true` where the user writes `false`, `True` where he writes `False`.
  if (like && /^(?:true|false)$/.test(like)) return String(value);
  return value ? rule.yes : rule.no;
}

function fits(value: Scalar | undefined, wanted: Scalar): boolean {
  if (wanted === null) return value === undefined || isFalsy(value);
  if (value === undefined) return false;
  if (wanted === false) return isFalsy(value);
  if (wanted === true) return value === true || /^(?:true|yes|on|t|y|1)$/i.test(String(value));
  return String(value).toLowerCase() === String(wanted).toLowerCase();
}
