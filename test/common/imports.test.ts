import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = join(import.meta.dirname, '..', '..', 'src');

/** What each folder may import beside itself; docs/architecture.md says the same. Types count as values do. */
const MAY_IMPORT: Record<string, string[]> = {
  common: [],
  contract: ['common'],
  devices: ['contract', 'common'],
  tuner: ['contract', 'common'],
  runtime: ['contract', 'devices', 'common'],
  store: ['contract', 'common'],
  worker: ['tuner', 'runtime', 'store', 'contract', 'devices', 'common'],
  daemon: ['worker', 'tuner', 'runtime', 'store', 'contract', 'devices', 'common'],
  cli: ['daemon', 'worker', 'tuner', 'runtime', 'store', 'contract', 'devices', 'common'],
};

const read = (path: string): string => readFileSync(join(SRC, path), 'utf8');

/** The files of src that each file of src imports, as values, as types or when it is needed. */
function readImports(): Map<string, string[]> {
  const imports = new Map<string, string[]>();
  for (const path of readdirSync(SRC, { recursive: true, encoding: 'utf8' })) {
    if (!path.endsWith('.ts')) continue;
    const text = read(path);
    const found = [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(\s*|^import\s+)'(\.[^']+)'/gm)].map(([, name]) =>
      relative(SRC, join(SRC, dirname(path), name as string)).replace(/\.js$/, '.ts'),
    );
    imports.set(path, [...new Set(found)]);
  }
  return imports;
}

const imports = readImports();
const folderOf = (path: string): string => path.split('/')[0] as string;

/** Files that import each other, each group in the order of the circle; Tarjan's algorithm. */
function circles(): string[][] {
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (path: string): void => {
    index.set(path, index.size);
    low.set(path, index.get(path) as number);
    stack.push(path);
    for (const next of imports.get(path) ?? []) {
      if (!index.has(next)) visit(next);
      if (stack.includes(next)) low.set(path, Math.min(low.get(path) as number, low.get(next) as number));
    }
    if (low.get(path) !== index.get(path)) return;
    const group = stack.splice(stack.indexOf(path));
    if (group.length > 1) found.push(group.sort());
  };
  for (const path of imports.keys()) if (!index.has(path)) visit(path);
  return found;
}

describe('imports', () => {
  it('are found: every one leads to a file', () => {
    const lost = [...imports].flatMap(([path, all]) =>
      all.filter((one) => !imports.has(one)).map((one) => `${path}: ${one}`),
    );
    expect(lost).toEqual([]);
    expect([...imports.values()].flat().length).toBeGreaterThan(1000);
  });

  it('run down the layers only: cli, daemon, worker, then tuner, runtime and store, then devices, contract and common', () => {
    const wrong = [...imports].flatMap(([path, all]) =>
      all
        .filter((one) => folderOf(one) !== folderOf(path) && !MAY_IMPORT[folderOf(path)]?.includes(folderOf(one)))
        .map((one) => `${path} imports ${one}`),
    );
    expect(wrong).toEqual([]);
  });

  it('make no circle, types included', () => {
    expect(circles()).toEqual([]);
  });

  it('leave Redis to the store: nobody else has a client, a key or a command of its own', () => {
    const wrong = [...imports.keys()].filter(
      (path) =>
        !path.startsWith('store/') &&
        /from 'ioredis'|\bstore\.keys\b|\bconnection\.redis\b|\{[^{}]*\bredis\b[^{}]*\} = [\w.#]*\bconnection\b/.test(
          read(path),
        ),
    );
    // BullMQ is handed the connection that the store made.
    expect(wrong).toEqual(['daemon/queues.ts']);
    expect(read('daemon/queues.ts')).toMatch(/import type \{ Redis \} from 'ioredis'/);
    expect(read('daemon/queues.ts')).not.toMatch(/#connection\.(?!setMaxListeners|disconnect)/);
  });

  it("leave BullMQ's own keys to one file", () => {
    const lists = /['"`:](prioritized|stalled|wait|active|delayed|lock)['"`]/;
    const wrong = [...imports.keys()].filter((path) => lists.test(read(path)) && /bullmq|Queue/.test(read(path)));
    expect(wrong).toEqual(['store/queue-entries.ts']);
  });
});
