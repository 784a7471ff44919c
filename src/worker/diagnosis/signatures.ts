import { join } from 'node:path';
import { z } from 'zod';
import { readConfig, yaml } from '../../common/config.js';
import { OomtuneError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { FAILURE_CLASSES } from '../../contract/failure.js';
import { complaint } from '../../contract/fields.js';
import { Automaton } from './automaton.js';
import { canonical } from './canonical.js';
import { type FieldName, fileSchema, type programSchema, type signatureSchema } from './signature-file.js';
import { compileTemplate, type Template } from './template.js';

export type { FieldName } from './signature-file.js';

/** What the file says of one kind of failure. */
export type Meaning = Pick<
  z.infer<typeof signatureSchema>,
  'class' | 'role' | 'certain' | 'cause' | 'advice' | 'program'
>;

/** Who ran, or where it failed, with a remedy of its own. */
export type Program = z.infer<typeof programSchema>;

export interface Signature extends Meaning {
  id: string;
  /** Place in the file: where several fit one message, the earlier wins. */
  rank: number;
  with: readonly string[];
  without: readonly string[];
  framed: readonly string[];
  near: number;
  fields: readonly FieldFamily[];
  phase: 'load' | 'eval' | 'save' | 'train' | null;
  prelude: boolean;
  quiet: boolean;
  passing: boolean;
  after: readonly string[];
  outranks: 'signal' | 'exit' | null;
}

export type FieldFamily = readonly { name: FieldName; templates: readonly Template[] }[];

/** A literal as it stands in a signature, and what must begin and end with it. */
export interface Use {
  signature: Signature;
  start: 'word' | 'line' | null;
  end: 'word' | 'line' | null;
}

export interface Signatures {
  /** Finds every literal; ids index `literals` and `uses`. */
  automaton: Automaton;
  literals: readonly string[];
  uses: readonly (readonly Use[])[];
  /** What an exception means, by its name. */
  raised: (path: string, name: string) => Meaning;
  advice: Readonly<Record<string, string>>;
  programs: readonly Program[];
}

let loaded: Signatures | null = null;

/** The signatures of config/signatures.yaml, read on first use. Throws OOMTUNE_INTERNAL, with the place, if it is invalid. */
export function signatures(): Signatures {
  if (loaded) return loaded;
  const path = join(PACKAGE_ROOT, 'config', 'signatures.yaml');
  try {
    loaded = checked(readConfig(path));
    return loaded;
  } catch (cause) {
    const reason = cause instanceof z.ZodError ? complaint(cause, 'the file') : (cause as Error).message;
    throw new OomtuneError(
      'OOMTUNE_INTERNAL',
      `${path} cannot be used: ${reason}.`,
      'Undo the last change to it, or install oomtune again.',
      { cause },
    );
  }
}

/** Text that makes the lines around it worth reading, beside the signatures' own. */
const LANDMARKS = ['traceback (most recent call last', 'the above exception, another', 'root cause (first'];

/** Reads and checks a file of signatures. Throws ZodError or RangeError that names what is wrong. */
export function compileSignatures(text: string): Signatures {
  return checked(yaml().parse(text));
}

function checked(said: unknown): Signatures {
  const file = fileSchema.parse(said);
  const families = new Map<string, FieldFamily>();
  for (const [name, fields] of Object.entries(file.fields)) {
    families.set(
      name,
      Object.entries(fields).map(([field, sources]) => ({
        name: field as FieldName,
        templates: (sources ?? []).map(compileTemplate),
      })),
    );
  }
  const ids = new Map<string, number>();
  const uses: Use[][] = [];
  const idOf = (literal: string): number => {
    let id = ids.get(literal);
    if (id === undefined) {
      id = ids.size;
      ids.set(literal, id);
      uses.push([]);
    }
    return id;
  };
  const names = new Set<string>([...file.signatures.map((entry) => entry.id), ...FAILURE_CLASSES]);
  for (const mark of LANDMARKS) idOf(canonical(mark));
  file.signatures.forEach((entry, rank) => {
    known(file.advice, entry.advice, entry.id);
    const signature: Signature = {
      id: entry.id,
      rank,
      class: entry.class,
      role: entry.role,
      certain: entry.certain,
      cause: entry.cause,
      advice: entry.advice,
      ...(entry.program === undefined ? {} : { program: entry.program }),
      with: entry.with.map(canonical),
      without: entry.without.map(canonical),
      framed: entry.framed,
      near: entry.near,
      fields: entry.fields.map((name) => {
        const family = families.get(name);
        if (!family) throw new RangeError(`signature ${entry.id}: no field family "${name}"`);
        return family;
      }),
      phase: entry.phase ?? null,
      prelude: entry.prelude,
      quiet: entry.quiet,
      passing: entry.passing,
      after: entry.after,
      outranks: entry.outranks ?? null,
    };
    if (entry.program !== undefined && !file.programs.some(({ id }) => id === entry.program)) {
      throw new RangeError(`signature ${entry.id}: no program "${entry.program}"`);
    }
    const unknown = entry.after.find((name) => !names.has(name));
    if (unknown !== undefined) throw new RangeError(`signature ${entry.id}: no signature or class "${unknown}"`);
    if (entry.any.length === 0) throw new RangeError(`signature ${entry.id} has no text`);
    for (const text of entry.any) {
      const start = text.startsWith('|') ? 'word' : text.startsWith('^') ? 'line' : null;
      const end = text.endsWith('|') ? 'word' : text.endsWith('$') ? 'line' : null;
      const literal = canonical(text.slice(start ? 1 : 0, end ? -1 : undefined));
      (uses[idOf(literal)] as Use[]).push({ signature, start, end });
    }
  });
  const exceptions = new Map<string, Meaning>();
  const parts: [string, Meaning][] = [];
  for (const { names, like, ...meaning } of file.exceptions) {
    known(file.advice, meaning.advice, (names[0] ?? like[0]) as string);
    for (const name of names) exceptions.set(name, meaning);
    for (const part of like) parts.push([part, meaning]);
  }
  const any = exceptions.get('Exception');
  if (!any) throw new RangeError('no exception "Exception"');
  const raised = (path: string, name: string) =>
    exceptions.get(path) ?? exceptions.get(name) ?? parts.find(([part]) => name.includes(part))?.[1] ?? any;
  for (const { id, advice } of file.programs) known(file.advice, advice, id);
  const programs = file.programs.map((program) => ({ ...program, texts: program.texts.map(canonical) }));
  const literals = [...ids.keys()];
  return { automaton: new Automaton(literals), literals, uses, raised, advice: file.advice, programs };
}

function known(advice: Record<string, string>, key: string, where: string): void {
  if (!Object.hasOwn(advice, key)) throw new RangeError(`${where}: no advice "${key}"`);
}
