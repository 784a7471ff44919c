import { closeSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { RunReport } from '../worker/types.js';
import { usageError } from './errors.js';

/** Hours of training must not end with a report that cannot be written: this is tried before the start. */
export function checkReportFile(file: string): void {
  const probe = beside(file);
  try {
    closeSync(openSync(probe, 'wx', 0o600));
    rmSync(probe);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    throw usageError(
      `The report ${file} cannot be written (${code}).`,
      'Name a file in a folder that exists and is yours.',
    );
  }
}

/** Whole or not at all: another program may be waiting for it. */
export function writeReport(file: string, report: RunReport): void {
  const half = beside(file);
  writeFileSync(half, `${JSON.stringify(report, null, 2)}\n`, { mode: 0o600 });
  renameSync(half, file);
}

function beside(file: string): string {
  return join(dirname(file), `.${basename(file)}.${process.pid}`);
}
