import type { JobOptions } from '../../contract/options.js';

/**
 * The options of `oomtune run` that say the same as those of a job, for a cluster that runs it. Not among them: what only a
 * daemon's queue knows (priority, after, host, share), and `--env`, whose values the cluster is given in its own way.
 */
export function runWords(options: JobOptions): string[] {
  const words: string[] = [];
  const give = (flag: string, value: string | number | null | undefined, preset?: string | number): void => {
    if (value !== null && value !== undefined && value !== preset) words.push(flag, String(value));
  };
  const set = (flag: string, on: boolean | undefined): void => {
    if (on) words.push(flag);
  };
  give('--name', options.name);
  give('--device', options.device);
  give('--budget', options.budget);
  give('--gpus', options.gpus, 1);
  set('--exclusive', options.exclusive);
  give('--effective-batch', options.effectiveBatch);
  give('--min-batch', options.minBatch, 1);
  give('--max-batch', options.maxBatch);
  give('--amp', options.amp, 'auto');
  give('--checkpointing', options.checkpointing, 'auto');
  give('--chunked-loss', options.chunkedLoss, 'auto');
  give('--allow', options.allow?.join(','));
  give('--accumulation', options.accumulation, 'auto');
  give('--cut', options.cut, 'auto');
  give('--micro-batch-tokens', options.microBatchTokens);
  set('--exact', options.exact);
  give('--objective', options.objective, 'max-batch');
  give('--headroom', options.headroomPct, 3);
  give('--preset', options.preset, 'auto');
  give('--steps', options.steps, 3);
  set('--no-fork', options.fork === false);
  set('--probe-eval', options.probeEval);
  give('--timeout', options.timeoutSeconds);
  if (options.timeSeconds != null) words.push('--time', `${options.timeSeconds}s`);
  give('--max-launches', options.maxLaunches);
  set('--no-tune', !options.tune);
  set('--restart', options.restart);
  if (options.resumeArg !== null) words.push(`--resume-arg=${options.resumeArg}`);
  give('--retries', options.retries, 2);
  return words;
}
