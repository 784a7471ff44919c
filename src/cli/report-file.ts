import type { RunReport } from '../contract/reports.js';
import { checkWritable, writeWhole } from './whole-file.js';

export function checkReportFile(file: string): void {
  checkWritable(file, 'report');
}

export function writeReport(file: string, report: RunReport): Promise<void> {
  return writeWhole(file, `${JSON.stringify(report, null, 2)}\n`);
}
