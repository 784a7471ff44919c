#!/usr/bin/env node
/** Writes docs/reference/schemas from src/contract; `--check` only says whether it is up to date. */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { documents, jsonSchema } from '../dist/contract/documents.js';

const FOLDER = new URL('../docs/reference/schemas/', import.meta.url);

const files = new Map(
  Object.keys(documents).map((name) => [`${name}.json`, `${JSON.stringify(jsonSchema(name), null, 2)}\n`]),
);

const there = () => {
  try {
    return readdirSync(FOLDER);
  } catch {
    return [];
  }
};

if (process.argv.includes('--check')) {
  const current = new Map(there().map((file) => [file, readFileSync(new URL(file, FOLDER), 'utf8')]));
  const stale = [...new Set([...files.keys(), ...current.keys()])].filter(
    (file) => files.get(file) !== current.get(file),
  );
  if (stale.length > 0) {
    process.stderr.write(
      `docs/reference/schemas is out of date (${stale.join(', ')}): run node scripts/json-schemas.mjs\n`,
    );
    process.exitCode = 1;
  }
} else {
  mkdirSync(FOLDER, { recursive: true });
  for (const file of there()) if (!files.has(file)) rmSync(new URL(file, FOLDER));
  for (const [file, text] of files) writeFileSync(new URL(file, FOLDER), text);
}
