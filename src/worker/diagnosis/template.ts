import { canonical } from './canonical.js';
import { numberAt, numberBefore, type Quantity, toBytes, unitAt, unitBefore } from './quantity.js';

/**
 * A form in which a message gives figures: literals with places in braces.
 *   {size}  a number with its unit      {bytes}  a number of bytes, unit or not     {mib}  a number of MiB without unit
 *   {part}  a number whose unit stands behind the size after it: 7.4/23.6 GiB
 *   {int}   a whole number              {*}      up to 160 other characters
 * Matching goes forward and backward from the first literal, each place bounded: linear in the text, whatever it is.
 */
export interface Template {
  /** What stands before `anchor`, at most one place. */
  before: Placeholder | null;
  anchor: string;
  /** What follows it, in order. */
  after: (Placeholder | { literal: string } | { skip: string })[];
}

interface Placeholder {
  kind: 'size' | 'bytes' | 'mib' | 'part' | 'int';
}

const KINDS = new Set(['size', 'bytes', 'mib', 'part', 'int']);
const LONGEST_SKIP = 160;
const MOST_TRIES = 64;

/** Throws RangeError, with the template, for one that cannot be matched in linear time or names no place. */
export function compileTemplate(source: string): Template {
  const parts = source.split(/(\{[^{}]*\})/).filter((part) => canonical(part) !== '');
  const template: Template = { before: null, anchor: '', after: [] };
  let places = 0;
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i] as string;
    const name = part.startsWith('{') ? part.slice(1, -1) : null;
    if (name === null) {
      if (template.anchor === '') template.anchor = canonical(part);
      else template.after.push({ literal: canonical(part) });
    } else if (name === '*') {
      const follows = parts[++i];
      if (!follows || follows.startsWith('{') || template.anchor === '')
        throw new RangeError(`bad template "${source}"`);
      template.after.push({ skip: canonical(follows) });
    } else {
      if (!KINDS.has(name)) throw new RangeError(`unknown place {${name}} in template "${source}"`);
      const placeholder = { kind: name as Placeholder['kind'] };
      places += 1;
      if (template.anchor !== '') template.after.push(placeholder);
      else if (template.before) throw new RangeError(`two places before the first literal of "${source}"`);
      else template.before = placeholder;
    }
  }
  if (template.anchor === '' || places === 0) throw new RangeError(`bad template "${source}"`);
  return template;
}

/** The figures of the first match at or after `from`, in the order of the places, and where to look on; null: none. */
export function matchTemplate(
  template: Template,
  text: string,
  from = 0,
): { values: (number | null)[]; at: number; to: number } | null {
  let at = text.indexOf(template.anchor, from);
  for (let tries = 0; at >= 0 && tries < MOST_TRIES; tries++) {
    const values = tryAt(template, text, at);
    if (values) return { values, at, to: at + template.anchor.length };
    at = text.indexOf(template.anchor, at + 1);
  }
  return null;
}

function tryAt(template: Template, text: string, at: number): (number | null)[] | null {
  const values: (number | null)[] = [];
  if (template.before) {
    const value = placeholderBefore(template.before.kind, text, at);
    if (value === undefined) return null;
    values.push(value);
  }
  let position = at + template.anchor.length;
  for (let i = 0; i < template.after.length; i++) {
    const part = template.after[i] as Template['after'][number];
    if ('literal' in part) {
      if (!text.startsWith(part.literal, position)) return null;
      position += part.literal.length;
    } else if ('skip' in part) {
      const found = text.slice(position, position + LONGEST_SKIP + part.skip.length).indexOf(part.skip);
      if (found < 0) return null;
      position += found + part.skip.length;
    } else {
      const next = template.after[i + 1];
      const placeholder = placeholderAt(part.kind, text, position, next && 'literal' in next ? next.literal : '');
      if (!placeholder) return null;
      values.push(placeholder.value);
      position = placeholder.to;
    }
  }
  return values;
}

function placeholderAt(
  kind: Placeholder['kind'],
  text: string,
  at: number,
  must: string,
): { value: number | null; to: number } | null {
  const number = numberAt(text, at);
  if (!number) return null;
  if (kind === 'int') {
    const ends = number.to < text.length && Number.isSafeInteger(number.value);
    return ends ? { value: number.value, to: number.to } : null;
  }
  if (kind === 'mib') return { value: toBytes(number.value, 1024 ** 2), to: number.to };
  if (kind === 'part') {
    const whole = text[number.to] === '/' ? numberAt(text, number.to + 1) : null;
    const unit = whole && unitAt(text, whole.to, '');
    return unit ? { value: toBytes(number.value, unit.factor), to: number.to } : null;
  }
  if (kind === 'bytes' && must !== '' && text.startsWith(must, number.to)) {
    return { value: toBytes(number.value, 1), to: number.to };
  }
  const unit = unitAt(text, number.to, must) ?? (must === '' ? null : unitAt(text, number.to, ''));
  if (unit) return { value: toBytes(number.value, unit.factor), to: unit.to };
  // At the very end of what there is, a number may be the first half of one.
  if (kind !== 'bytes' || number.to === text.length || text[number.to] === ',') return null;
  return { value: toBytes(number.value, 1), to: number.to };
}

/** undefined: no figure ends there. */
function placeholderBefore(kind: Placeholder['kind'], text: string, to: number): number | null | undefined {
  const unit = kind === 'size' || kind === 'bytes' ? unitBefore(text, to) : null;
  if (kind === 'size' && !unit) return undefined;
  const number: Quantity | null = numberBefore(text, unit ? unit.from : to);
  if (!number || number.to !== (unit ? unit.from : to)) return undefined;
  if (kind === 'int') return Number.isSafeInteger(number.value) ? number.value : undefined;
  return toBytes(number.value, unit ? unit.factor : kind === 'mib' ? 1024 ** 2 : 1);
}
