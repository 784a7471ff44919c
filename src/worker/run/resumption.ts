import { opendir, stat } from 'node:fs/promises';
import { extname, join, resolve } from 'node:path';
import { secondsOf } from '../../common/bounds.js';
import { readText } from '../../common/regular-file.js';
import { canLookAt } from '../command/named-paths.js';
import type { Target } from '../target.js';
import type { WorkRequest } from '../types.js';

/** The script asks whether it is to resume. */
const ASKS = /OOMTUNE_RESUME|oomtune\.config\(/;
/** The script reads a checkpoint somewhere. (`load_state_dict()` alone reads no file: it fills a target network from another, too.) */
const READS =
  /\b(?:torch|dcp|fabric)\.load\(|\bload_file\(|\bFileSystemReader\(|\bload_checkpoint\(|\bload_from_checkpoint\(|\bload_state\(|\bresume_from_checkpoint\b|\bckpt_path\b|\brestore\(/;
/** `--resume`, `--auto-resume`, `--resume_from_checkpoint=last`; scripts with such a flag read checkpoints only with it. */
const FLAG = /^--?(?:auto[-_]?)?resume/i;
const TAKES_FLAG = /add_argument\(\s*['"]--?(?:auto[-_]?)?resume/i;
/** The most seconds of work that `run` repeats unasked. */
const AT_STAKE = 600;

/** Whether somebody has seen to it that a further launch resumes: by `--resume-arg`, or in the script. */
export async function isMadeToResume({ command, options }: WorkRequest, target: Target): Promise<boolean> {
  return options.resumeArg !== null || ((await canLookAt(command, options.cwd)) && ASKS.test(textOf(target)));
}

/** Whether the next launch resumes: it is made to, or reads a checkpoint, and one has been written since `since` (ms). */
export async function resumes(request: WorkRequest, target: Target, since: number): Promise<boolean> {
  const { command, options } = request;
  if (await isMadeToResume(request, target)) return true;
  if (!(await canLookAt(command, options.cwd))) return false;
  const text = textOf(target);
  const reads =
    target.plan.resumes ?? (command.some((word) => FLAG.test(word)) || (READS.test(text) && !TAKES_FLAG.test(text)));
  return reads && (await wroteCheckpoint(command, options.cwd, since));
}

/** The script's, or what stands in its command; empty where it is gone: nothing in it resumes. */
function textOf({ plan: { program } }: Target): string {
  return (program.script === null ? program.code : readText(program.script.absolute)) ?? '';
}

/** Seconds of work beyond which `run` starts over only with `--restart`. */
export function secondsAtStake(environment: NodeJS.ProcessEnv = process.env): number {
  return secondsOf('OOMTUNE_RESTART_SECONDS', environment) ?? AT_STAKE;
}

/** When a scheduler first started the job that it now starts again (ms); null: this is its first start. */
export function progressSince(environment: NodeJS.ProcessEnv = process.env): number | null {
  const seconds = Number(environment.OOMTUNE_FIRST_START);
  return environment.OOMTUNE_FIRST_START && Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : null;
}

/** Entries to look at below one folder, which may hold a data set. */
const MOST_ENTRIES = 5000;
const DEEPEST = 4;

const WEIGHTS = new Set(
  'bin ckpt distcp h5 hdf5 keras msgpack npz orbax pickle pkl pt pth safetensors tar'
    .split(' ')
    .map((name) => `.${name}`),
);
const NAMED = /checkpoint|ckpt|snapshot/i;
/** Files that programs write before any checkpoint. */
const NOISE = new Set('csv err lock log md out pid png svg tsv yaml yml'.split(' ').map((name) => `.${name}`));
const SKIPPED = /^(\..*|__pycache__|node_modules|site-packages|wandb|mlruns)$/;

/** Whether a command wrote a checkpoint after `since` (ms), in its folder or in one that it names. Samples large folders. */
export async function wroteCheckpoint(command: string[], cwd: string, since: number): Promise<boolean> {
  if (!(await canLookAt(command, cwd))) return false;
  if (await search(cwd, since, 0, { left: MOST_ENTRIES }, isOutput)) return true;
  for (const folder of await foldersOf(command, cwd)) {
    if (await search(folder, since, 0, { left: MOST_ENTRIES }, isCheckpoint)) return true;
  }
  return false;
}

type Looks = (name: string, depth: number) => boolean;

const isCheckpoint: Looks = (name) => WEIGHTS.has(extname(name)) || NAMED.test(name);
const isOutput: Looks = (name, depth) => isCheckpoint(name, depth) || (depth === 0 && !NOISE.has(extname(name)));

async function search(
  folder: string,
  since: number,
  depth: number,
  budget: { left: number },
  looks: Looks,
): Promise<boolean> {
  const below: string[] = [];
  try {
    for await (const entry of await opendir(folder)) {
      if (budget.left <= 0) break;
      budget.left -= 1;
      if (SKIPPED.test(entry.name)) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) below.push(path);
      const counts = entry.isDirectory() ? NAMED.test(entry.name) : looks(entry.name, depth);
      if (counts && (await stat(path)).mtimeMs > since) return true;
    }
  } catch {
    return false; // gone, or another user's: nothing to resume from
  }
  if (depth === DEEPEST) return false;
  for (const path of below) if (await search(path, since, depth + 1, budget, looks)) return true;
  return false;
}

/** Folders in the command, as `--output DIR`, `--output=DIR` or alone. */
async function foldersOf(command: string[], cwd: string): Promise<string[]> {
  const found = new Set<string>();
  for (const word of command.slice(1)) {
    const path = resolve(cwd, word.startsWith('-') ? word.slice(word.indexOf('=') + 1) : word);
    if (path !== cwd && (await stat(path).catch(() => null))?.isDirectory()) found.add(path);
  }
  return [...found];
}
