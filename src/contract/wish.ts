import type { z } from 'zod';

const KINDS: Record<string, string> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  tuple: 'a list',
  object: 'names with values',
  record: 'names with values',
};

const quoted = (values: readonly unknown[]): string[] => values.map((value) => JSON.stringify(value));
const either = (wishes: string[]): string =>
  wishes.length < 2 ? wishes.join('') : `${wishes.slice(0, -1).join(', ')} or ${wishes.at(-1)}`;

/** What a wrong value should have been: it completes "it should be …", as what schemas say of themselves does. Undefined: the library's words. */
export function wishOf(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === 'invalid_type') return issue.input === undefined ? 'given' : KINDS[issue.expected];
  if (issue.code === 'invalid_value')
    return issue.values.length === 1 ? String(issue.values[0]) : `one of ${issue.values.join(', ')}`;
  if (issue.code === 'unrecognized_keys') return `without ${quoted(issue.keys).join(', ')}, which is unknown`;
  if (issue.code === 'invalid_union') {
    const wishes = issue.errors.flatMap(([first]) => (first === undefined ? [] : [first.message]));
    return wishes.length === 0 ? undefined : either([...new Set(wishes)]);
  }
  if (issue.code === 'invalid_format' && issue.format === 'datetime') return 'a time such as 2026-01-31T12:00:00Z';
  if (issue.code === 'invalid_format' && issue.format === 'regex') return `text like ${issue.pattern}`;
  if (issue.code === 'too_small') return `${sizeOf(issue.origin)} of at least ${issue.minimum}${unitOf(issue.origin)}`;
  if (issue.code === 'too_big') return `${sizeOf(issue.origin)} of at most ${issue.maximum}${unitOf(issue.origin)}`;
  return undefined;
}

const sizeOf = (origin: string): string => KINDS[origin] ?? 'a value';
const unitOf = (origin: string): string => (origin === 'string' ? ' characters' : origin === 'array' ? ' entries' : '');
