/**
 * The folder of a launch below the job's. A later try of the job has others than the one before: that may still run on a host
 * that cannot be heard, and hosts may share their home.
 */
export function launchFolder(epoch = 1, launch: number): string {
  return epoch === 1 ? String(launch) : `${epoch}.${launch}`;
}
