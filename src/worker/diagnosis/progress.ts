/** Signs that a job is getting on: what tells a failure that ended it from one that it got over. */
export interface Progress {
  kind: 'load' | 'train' | 'eval' | 'save';
  /** The count that rises, if one is shown. */
  step: number | null;
  /** tqdm's bar, not full: it prints it once more as its process ends, also of steps that it had not shown yet. */
  unfinished: boolean;
}

const BAR = /(\d{1,9})\/(\d{1,9}|\?) ?[[━]/;
const KERAS = /^\W{0,4}\d{1,7}\/\d{1,7} (?:\[[=.>]|━)/;
const COUNT =
  /(?:^|[^a-z])(?:global[ _-]?step|steps?|iter(?:ation)?s?|it|batch(?:es)?|epochs?|update)(?: \w{1,12})?[ :=#[\]"'(]{1,5}(\d{1,9})/;
const LOSS =
  /(?:^|[^a-z])(?:loss|lr|perplexity|ppl|acc(?:uracy)?|throughput|samples\/s(?:ec)?|it\/s|s\/it|tokens\/s(?:ec)?)[^a-z]{0,6}\d/;
const FAILING = /(?:^|[^\w])error:|[a-z]error\b(?!_)|exception|traceback/;
const LOADING =
  /\b(?:load|download|fetch|token|map|filter|prepar|resolv|generat\w* (?:train|split)|shard|extract|build)/;
const SAVING = /\b(?:sav(?:e|ing)\b|writing checkpoint|checkpoint saved)/;
const EVALUATING = /\b(?:eval|valid|val\b|test(?:ing)?\b|predict|inference|sanity check)/;

/** Reads a line as progress; null for every other line. */
export function readProgress(text: string): Progress | null {
  if (text.length > 2000 || !hasDigit(text)) return null;
  const bar = KERAS.test(text) || text.includes('%|') || text.includes('it/s') || text.includes('s/it');
  const lower = text.toLowerCase();
  if (!bar && !lower.includes('step') && !lower.includes('epoch') && !lower.includes('iter') && !lower.includes('loss'))
    return null;
  // Summaries at the end, settings at the start, and messages about failures are no progress.
  if (lower.includes('wandb:') || lower.includes('out of memory') || FAILING.test(lower)) return null;
  const count = bar ? (BAR.exec(lower) ?? COUNT.exec(lower)) : COUNT.exec(lower);
  if (!bar && !(count && (LOSS.test(lower) || /^\W{0,3}(?:epoch|step|iter|global|train|\[)/.test(lower.trimStart()))))
    return null;
  const unfinished = text.includes('%|') && Number(count?.[1]) < Number(count?.[2]);
  return { kind: kindOf(lower, bar), step: count ? Number(count[1]) : null, unfinished };
}

const DONE =
  /(?:(?:training|fine-?tuning) (?:is )?(?:complete|completed|finished|done|ended)|(?:finished|completed|done with|end of|^end) (?:training|fine-?tuning)|^successfully completed\.$|trainer\.fit` stopped|training took|run finished successfully|job completed successfully|terminated of its own accord .{0,60}exit-code 0\b|normal termination \(return value 0\))/;

/** The job says that it came to its end. */
export function saysDone(text: string): boolean {
  return text.length < 400 && DONE.test(text.toLowerCase());
}

const OVER =
  /(?:\b(?:job|jobs|script|run|task|tasks|pipeline|workflow|everything|all)\b.{0,40}\b(?:complete|completed|finished|done|succeeded)\b|exited without errors?|\bsuccessfully\b)/;

/** Who runs several things says that they came to their end: what one of them lacked did not matter. */
export function saysOver(text: string): boolean {
  if (text.length >= 400) return false;
  const lower = text.toLowerCase();
  return OVER.test(lower) && !/\b(?:not|fail|failed|error)\b/.test(lower);
}

const RECOVERED =
  /(?:\bretry(?:ing)?\b.{0,60}\b(?:succeeded|successful|worked|ok|done)\b|\bsuccee?ded (?:with|at|after|on)\b.{0,40}\b(?:batch|retry|attempt|size)|\bbatch[ _]size \d{1,7}\b.{0,20}\b(?:works|worked|fits|succeeded)\b|\brunner started in \d|\b(?:recovered|recovery) (?:from|after) (?:the )?(?:oom|out[ -]of[ -]memory|cuda))/;

/** The job says that what had failed went well when it was tried again. */
export function saysRecovered(text: string): boolean {
  if (text.length >= 400) return false;
  const lower = text.toLowerCase();
  return RECOVERED.test(lower) && !/\b(?:not|never|cannot|could|might)\b/.test(lower);
}

/** What a line says the job is at, progress or not. */
export function readStage(text: string): Progress['kind'] | null {
  if (text.length > 400) return null;
  const lower = text.toLowerCase();
  if (/(?:saving (?:model|checkpoint|state|optimizer|weights|final)|writing checkpoint|save_pretrained)/.test(lower))
    return 'save';
  if (
    /(?:running (?:evaluation|validation|prediction)|evaluating\b|\*{3,5} running eval|validating\b|sanity check)/.test(
      lower,
    )
  )
    return 'eval';
  if (/(?:\*{3,5} running training|start(?:ing)? training|begin training)/.test(lower)) return 'train';
  if (
    /(?:loading (?:checkpoint|model|weights|state|pretrained|base model)|building model|initializing model)/.test(lower)
  )
    return 'load';
  return null;
}

function kindOf(lower: string, bar: boolean): Progress['kind'] {
  const head = bar ? lower.slice(0, Math.max(0, lower.search(/\d{1,3}%|\d+it \[/))) : lower;
  if (EVALUATING.test(head) && !/\btrain/.test(head)) return 'eval';
  if (bar && LOADING.test(head)) return 'load';
  if (SAVING.test(head)) return 'save';
  return 'train';
}

function hasDigit(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code >= 48 && code <= 57) return true;
  }
  return false;
}
