import { CommanderError } from 'commander';
import { type ErrorCode, OomtuneError, usageError } from '../common/errors.js';
import { homePath } from '../common/home.js';
import { refusal } from '../common/refusal.js';
import { plainText } from '../common/terminal.js';
import { inspect, type Output } from './output.js';

/** Any thrown value as an error that a user can act on. */
export function asOomtuneError(thrown: unknown, verb: string | null): OomtuneError {
  if (thrown instanceof OomtuneError) return thrown;
  if (thrown instanceof CommanderError) return fromCommander(thrown, verb);
  if (isOomtuneLike(thrown)) return new OomtuneError(thrown.code, thrown.message, thrown.remedy, { cause: thrown });
  if (thrown instanceof Error && thrown.name === 'AbortError') return interrupted(thrown);
  if (thrown instanceof Error && 'syscall' in thrown && thrown.syscall === 'uv_cwd')
    return usageError('The folder that this was called in is gone.', 'Go to one that exists (cd).');
  const refused = refusal(thrown, knownHome());
  if (refused !== null) return refused;
  const said = thrown instanceof Error ? thrown.message : inspect(thrown);
  return new OomtuneError(
    'OOMTUNE_INTERNAL',
    `Something went wrong inside oomtune: ${oneLine(said) || 'no message'}`,
    'Run it again with OOMTUNE_DEBUG=1 to see where, and report it with that output.',
    { cause: thrown },
  );
}

/** null: there is none, which is said where one is looked for: here is an error to be shown already. */
function knownHome(): string | null {
  try {
    return homePath();
  } catch {
    return null;
  }
}

export function interrupted(cause?: unknown): OomtuneError {
  const remedy = 'Nothing is left running; start it again when you like.';
  return new OomtuneError('OOMTUNE_INTERRUPTED', 'Interrupted.', remedy, { cause });
}

/** The code of such a search: the training alone may fit. */
export const codeOfMisfit = (reason: string | null | undefined): ErrorCode =>
  reason === 'eval' || reason === 'save' ? 'OOMTUNE_EVALUATION_MISFIT' : 'OOMTUNE_EXHAUSTED';

/** The sentence of a search without an answer, by what its failure says of itself. */
export function nothingFits(failure: { class?: string; reason?: unknown; cure?: unknown } | null | undefined): string {
  const { reason, cure } = failure ?? {};
  if (reason === 'eval' || reason === 'save')
    return `The training fits, but not the ${reason === 'eval' ? 'evaluation' : 'saving'} of the job beside it.`;
  if (reason === 'leak') return 'No batch size helps: the memory of the job grows with every step.';
  if (reason === 'batch' && cure === 'none') return 'The batch needs too much memory, and no smaller one could be set.';
  return failure?.class === 'user_error'
    ? 'No micro-batch is left to try.'
    : 'Nothing fits, even the smallest batch with every allowed knob.';
}

/** The evidence, where it is not in what was said already; null: it is, or there is none. */
export function unsaid(
  evidence: string | null | undefined,
  ...said: (string | number | null | undefined)[]
): string | null {
  if (!evidence) return null;
  const words = evidence.replace(/\.$/, '').toLowerCase();
  return said.some((text) =>
    String(text ?? '')
      .toLowerCase()
      .includes(words),
  )
    ? null
    : evidence;
}

/** Shows every error: sentence, remedy and code; with `--json` the document, on stdout. */
export function renderError(error: OomtuneError, out: Output): void {
  if (out.json) {
    out.failure(error.toJSON());
  } else {
    const paint = out.paintErr;
    out.note(`${paint('red', 'oomtune:')} ${plainText(error.message)}`);
    for (const line of plainText(error.remedy).split('\n')) out.note(`  ${line}`);
    out.note(paint('dim', `  (${error.code})`));
  }
  if (process.env.OOMTUNE_DEBUG) {
    for (let link: unknown = error; link instanceof Error; link = link.cause) out.note(link.stack ?? String(link));
  }
}

/** commander's message (`error: unknown option '--foo'\n(Did you mean --for?)`) in our form. */
function fromCommander(error: CommanderError, verb: string | null): OomtuneError {
  if (error.code === 'commander.help')
    return usageError('There is no such verb to help with.', 'Run `oomtune --help` to see them all.');
  const [first = '', ...rest] = error.message.replace(/^error: /, '').split('\n');
  const choice = /^option '(--[a-z-]+)[^']*' argument '([^']*)' is invalid\. Allowed choices are (.*)\.$/.exec(first);
  const help = `Run \`oomtune ${verb ? `${verb} ` : ''}--help\` to see what it takes.`;
  const hint = rest
    .join(' ')
    .trim()
    .replace(/^\((.*)\)$/, '$1');
  if (choice) return usageError(`Expected ${choice[1]} to be one of ${choice[3]}, got "${choice[2]}".`, help);
  return usageError(`${sentence(first.replace(/'([^']*)'/g, '"$1"'))}`, hint ? `${hint}\n${help}` : help);
}

function sentence(text: string): string {
  const trimmed = oneLine(text);
  return `${trimmed.charAt(0).toUpperCase()}${trimmed.slice(1)}${/[.?!]$/.test(trimmed) ? '' : '.'}`;
}

const oneLine = (text: string): string => text.split('\n', 1)[0]?.trim() ?? '';

/** An OomtuneError of another copy of the class (a worker thread, a second build). */
function isOomtuneLike(thrown: unknown): thrown is { code: ErrorCode; message: string; remedy: string } {
  return (
    thrown instanceof Error &&
    'code' in thrown &&
    'remedy' in thrown &&
    typeof thrown.code === 'string' &&
    thrown.code.startsWith('OOMTUNE_') &&
    typeof thrown.remedy === 'string'
  );
}
