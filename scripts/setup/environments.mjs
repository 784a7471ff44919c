#!/usr/bin/env node
/** The environments of real packages that tests run, made where they are missing: prints the variables that name them to vitest, as JSON. */
import { ensureEntryPoints } from './entry-points.mjs';
import { ensureFrameworks } from './frameworks.mjs';
import { ensureIntegrations } from './integrations.mjs';
import { compileHook } from './python.mjs';

const frameworks = ensureFrameworks();
const there = frameworks !== null;
if (there) compileHook(frameworks);
console.log(
  JSON.stringify({
    OOMTUNE_TEST_FRAMEWORKS: frameworks ?? '',
    OOMTUNE_TEST_INTEGRATIONS: (there ? ensureIntegrations() : null) ?? '',
    OOMTUNE_TEST_ENTRY_POINTS: there ? ensureEntryPoints(frameworks) : '',
  }),
);
