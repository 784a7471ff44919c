import type { Frame } from './traceback.js';

/** The text of a file of the job's that a traceback names; null: it is not to be had. */
export type ScriptText = (file: string) => string | null;

const LIBRARY = /[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d|^</;
const MODULE_CALL = /[\\/]torch[\\/]nn[\\/]modules[\\/]module\.py$/;
const NO_GRADIENTS = /^(?:with|@).*(?:\b(?:no_grad|inference_mode)\b|set_grad_enabled\(False\))/;
const LOOP = /^(?:async )?(?:for|while)\b/;
const SCOPE = /^(?:async )?def\b|^class\b/;
/** A backward pass, or what scripts name functions that make one. */
const STEPS = /\b(?:backward|(?:train\w*_|optim\w*_)?step|optimi[sz]e\w*)\(/;

/** Gradients of something besides the weights, as an attack on the pictures takes them. */
const OWN_GRADIENTS = /\bgrad\(/;

/** Index of the outermost frame in which torch calls a model; -1: none does. */
export const modelCall = (frames: readonly Frame[]): number => frames.findIndex(({ file }) => MODULE_CALL.test(file));

/**
 * Whether the script evaluates where it stands, in no function that is called by what it does: it called a model with gradients
 * off, or one that it had put in evaluation mode, and no backward pass was to follow in that turn of the loop, as one does where a
 * teacher or a reference model is called for a training step.
 */
export function evaluatesInPlace(frames: readonly Frame[], textOf: ScriptText): boolean {
  const call = modelCall(frames);
  // What a model does inside has its own reasons: frozen parts of it are called without gradients in training.
  const script = frames.slice(0, Math.max(0, call)).filter(({ file }) => !LIBRARY.test(file));
  const places = script.map((frame) => placeOf(frame, textOf(frame.file)?.split('\n') ?? []));
  let evaluates = false;
  for (const place of places.reverse()) {
    if (place.steps) return false;
    evaluates ||= place.evaluates;
    // A pass over data of its own is none that a step of the callers waits for.
    if (place.evaluates && place.loops) return true;
  }
  return evaluates;
}

interface Place {
  evaluates: boolean;
  /** A loop of its function is around it. */
  loops: boolean;
  /** A backward pass or an optimizer's step follows in the innermost loop around it, or in its function where there is none. */
  steps: boolean;
}

function placeOf({ line, source }: Frame, lines: readonly string[]): Place {
  const at = line - 1;
  // It may have been written anew since.
  if (source === '' || lines[at]?.trim().slice(0, source.length) !== source)
    return { evaluates: false, loops: false, steps: true };
  const around = headsAround(lines, at);
  const scope = around.find((head) => SCOPE.test(bare(lines, head))) ?? -1;
  const takesGradients = (head: number) => lines.slice(at, endOf(lines, head)).some((text) => OWN_GRADIENTS.test(text));
  // One that takes gradients of its own is a part of the turn of the loop around it, or of what its function is called for.
  const loops = around.filter((head) => head > scope && LOOP.test(bare(lines, head)));
  const loop = loops.find((head) => !takesGradients(head)) ?? scope;
  return {
    loops: loop !== scope,
    evaluates:
      around.some((head) => head > scope && NO_GRADIENTS.test(bare(lines, head))) ||
      isDecorated(lines, scope) ||
      inEvaluationMode(source, lines.slice(scope + 1, at)),
    steps: lines.slice(at + 1, endOf(lines, loop)).some((text) => STEPS.test(text)),
  };
}

/** Lines that begin the blocks around a line, innermost first. */
function headsAround(lines: readonly string[], at: number): number[] {
  const heads: number[] = [];
  let within = indentOf(lines, at);
  for (let i = at - 1; i >= 0 && within > 0; i--) {
    if (isEmpty(lines, i) || indentOf(lines, i) >= within) continue;
    within = indentOf(lines, i);
    heads.push(i);
  }
  return heads;
}

/** The first line after a block; -1: the block is the whole file. */
function endOf(lines: readonly string[], head: number): number {
  if (head < 0) return lines.length;
  for (let i = head + 1; i < lines.length; i++)
    if (!isEmpty(lines, i) && indentOf(lines, i) <= indentOf(lines, head)) return i;
  return lines.length;
}

function isDecorated(lines: readonly string[], scope: number): boolean {
  for (let i = scope - 1; i >= 0 && bare(lines, i).startsWith('@'); i--)
    if (NO_GRADIENTS.test(bare(lines, i))) return true;
  return false;
}

/** The last that was said of something that the line calls: `net.eval()`, and no `net.train()` since. */
function inEvaluationMode(source: string, before: readonly string[]): boolean {
  for (const [, name] of source.matchAll(/([\w.]+)\(/g)) {
    const said = before.map((text) => text.trim()).filter((text) => text.startsWith(`${name}.`));
    const mode = said.findLast((text) => /\.(?:eval|train)\([^)]*\)$/.test(text));
    if (mode === `${name}.eval()` || mode === `${name}.train(False)`) return true;
  }
  return false;
}

const bare = (lines: readonly string[], at: number): string => lines[at]?.trim() ?? '';
const indentOf = (lines: readonly string[], at: number): number => lines[at]?.search(/\S|$/) ?? 0;
const isEmpty = (lines: readonly string[], at: number): boolean => /^(?:#|$)/.test(bare(lines, at));
