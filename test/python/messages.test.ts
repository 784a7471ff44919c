import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { hookMessage, hookOrder } from '../../src/contract/hook.js';

/** The hook's own list of fields, with whether each is always sent and may be None; of messages and of what they hold. */
const LIST = `
import json, typing
from oomtune.hook import messages
from oomtune.hook.apply.knobs import RungKnobs
from oomtune.hook.probe.probe import REQUEST_FIELDS
def fields(kind):
    found = {}
    for base in (kind, *getattr(kind, "__orig_bases__", ())):
        for name, type in getattr(base, "__annotations__", {}).items():
            text = getattr(type, "__forward_arg__", None) or str(type)
            inner = getattr(messages, text, None)
            found[name] = {"always": name in kind.__required_keys__, "none": "None" in text or "Optional" in text,
                           "holds": None if inner is None else fields(inner)}
    return found
all = lambda kinds: {t: fields(kind) for t, kind in kinds.items()}
print(json.dumps({"said": all(messages.SENT), "heard": all(messages.RECEIVED), "ordered": [*REQUEST_FIELDS, *RungKnobs.NAMES]}))
`;

interface Field {
  always: boolean;
  none: boolean;
  holds: Fields | null;
}
type Fields = Record<string, Field>;

interface Hooks {
  said: Record<string, Fields>;
  heard: Record<string, Fields>;
  /** The fields of an order that the hook takes into account. */
  ordered: string[];
}

function hooks(): Hooks {
  const python = process.env.OOMTUNE_TEST_PYTHON ?? '/usr/bin/python3';
  const done = spawnSync(python, ['-c', LIST], {
    encoding: 'utf8',
    env: { ...process.env, PYTHONPATH: fileURLToPath(new URL('../../python', import.meta.url)) },
  });
  expect(done.status, done.stderr).toBe(0);
  return JSON.parse(done.stdout);
}

/** `t` → the fields that the worker reads. */
const read = new Map(
  hookMessage.options.flatMap((option) => {
    const tags = 'values' in option.shape.t.def ? option.shape.t.def.values : Object.values(option.shape.t.def.entries);
    return tags.map((tag): [string, z.ZodRawShape] => [String(tag), option.shape]);
  }),
);

function compare(said: Fields, shape: z.ZodRawShape, where: string): void {
  expect(Object.keys(said).sort(), where).toEqual(Object.keys(shape).sort());
  for (const [name, { always, none, holds }] of Object.entries(said)) {
    const schema = shape[name] as z.ZodType;
    if (!always) expect(schema.safeParse(undefined).success, `${where}.${name} may be absent`).toBe(true);
    if (none) expect(schema.safeParse(null).success, `${where}.${name} may be null`).toBe(true);
    if (holds !== null) compare(holds, (schema as z.ZodObject).shape, `${where}.${name}`);
  }
}

describe('the messages of the hook', () => {
  it('have the fields that the worker reads, and no other', () => {
    const { said } = hooks();
    expect(Object.keys(said).sort()).toEqual([...read.keys()].sort());
    for (const [tag, fields] of Object.entries(said)) compare(fields, read.get(tag) as z.ZodRawShape, tag);
  });

  it('that the worker sends have the fields that the hook knows, and each of a probe is taken into account', () => {
    const { heard, ordered } = hooks();
    const sent = new Map(hookOrder.options.map((option) => [String(option.shape.t.value), option.shape]));
    expect(Object.keys(heard).sort()).toEqual([...sent.keys()].sort());
    for (const [tag, fields] of Object.entries(heard)) compare(fields, sent.get(tag) as z.ZodRawShape, tag);
    expect(['t', ...ordered].sort()).toEqual(Object.keys(sent.get('probe') as z.ZodRawShape).sort());
  });
});
