#!/usr/bin/env node
/** Prepares everything, installs only what is missing, and may be run as often as one likes. No dependencies. */
import { fileURLToPath } from 'node:url';
import { ensureNative, ensurePackages, ensureTypeScript } from './setup/build.mjs';
import { ensurePromtool } from './setup/promtool.mjs';
import { findPython } from './setup/python.mjs';
import { Missing, say } from './setup/say.mjs';
import { ensureSystem } from './setup/system.mjs';

const OLDEST_NODE = [20, 17];

function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
    throw new Missing(
      `Node ${process.versions.node} is too old: oomtune needs ${OLDEST_NODE.join('.')} or newer.`,
      'Install Node 24 or 26 (nodejs.org/download).',
    );
  }
}

/** Returns the interpreter with torch that was found. */
export function setup({ tests = false } = {}) {
  const started = Date.now();
  checkNode();
  ensureSystem({ tests });
  const python = findPython();
  say(`python: ${python.path} (Python ${python.python}, torch ${python.torch})`);
  if (python.passed.length > 0) say(`        passed over, no torch: ${python.passed.join(', ')}`);
  ensurePackages();
  ensureTypeScript();
  ensureNative();
  if (tests) ensurePromtool();
  say(`set up in ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return python;
}

/** Runs `action`, says what is missing in one sentence with its remedy, and sets the exit code. */
export async function withErrors(action) {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Missing)) throw error;
    say(`\noomtune: ${error.message}\n  ${error.remedy}`);
    process.exitCode = 5;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await withErrors(() => setup({ tests: process.argv.includes('--tests') }));
}
