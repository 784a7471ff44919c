import { readFile, stat } from 'node:fs/promises';
import { canLookAt } from '../command/named-paths.js';
import type { Target } from '../target.js';
import type { WorkRequest } from '../types.js';
import { wroteCheckpoint } from './checkpoints.js';

/** The script asks whether it is to resume. */
const ASKS = /OOMTUNE_RESUME|oomtune\.config\(/;
/** The script reads a checkpoint somewhere. */
const READS =
  /\btorch\.load\(|\bload_state_dict\(|\bload_checkpoint\(|\bload_from_checkpoint\(|\bload_state\(|\bresume_from_checkpoint\b|\bckpt_path\b|\brestore\(/;
/** `--resume`, `--auto-resume`, `--resume_from_checkpoint=last`. */
const FLAG = /^--?(?:auto[-_]?)?resume/i;
/** A script is text that somebody wrote. */
const MOST_BYTES = 4 * 1024 ** 2;
/** Seconds of work that `run` does again unasked. */
const AT_STAKE = 600;

/**
 * Whether the next launch goes on where the last one ended: it is given an argument that says so, its script asks, or it
 * wrote a checkpoint since `since` (ms) and is known to read one.
 */
export async function resumes({ command, options }: WorkRequest, target: Target, since: number): Promise<boolean> {
  if (options.resumeArg !== null) return true;
  if (!(await canLookAt(command, options.cwd))) return false;
  const text = await scriptOf(target);
  if (ASKS.test(text)) return true;
  const reads = READS.test(text) || command.some((word) => FLAG.test(word));
  return reads && (await wroteCheckpoint(command, options.cwd, since));
}

async function scriptOf({ plan }: Target): Promise<string> {
  const { script, code } = plan.program;
  if (script === null) return code ?? '';
  try {
    return (await stat(script.absolute)).size > MOST_BYTES ? '' : await readFile(script.absolute, 'utf8');
  } catch {
    return ''; // it ran a moment ago, and is gone: nothing in it resumes
  }
}

/** Seconds of work from which on `run` starts again from the beginning only where it was told to (`--restart`). */
export function secondsAtStake(environment: NodeJS.ProcessEnv = process.env): number {
  const given = Number(environment.OOMTUNE_RESTART_SECONDS);
  return environment.OOMTUNE_RESTART_SECONDS && Number.isFinite(given) && given >= 0 ? given : AT_STAKE;
}
