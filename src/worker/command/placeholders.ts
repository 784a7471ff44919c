import { OomtuneError } from '../../common/errors.js';
import { editDistance } from '../../common/names.js';
import type { Config } from '../../contract/rung.js';

/** Names that stand for a value: `{micro_batch}`. */
export const VALUE_NAMES = ['micro_batch', 'accumulation', 'effective_batch', 'amp', 'checkpointing'] as const;
/** Names that may carry a text: `{amp?--bf16}`. */
const SWITCH_NAMES = ['amp', 'checkpointing'] as const;

export type PlaceholderName = (typeof VALUE_NAMES)[number];

/** `{name}` or `{name?text}`, with one more level of braces in the text; no other braces (JSON, `{}`, `{0}`, `{lr:3}`). */
const TOKEN = /\{([A-Za-z_][A-Za-z0-9_-]*)(\?((?:[^{}]|\{[^{}]*\})*))?\}/g;
/** The placeholder is all there is, or all that a flag is given: `{x}`, `--batch={x}`, `batch={x}`, `-b{x}`. */
const ALONE = /^(?:-{0,2}[A-Za-z0-9_.+-]*=|-[A-Za-z])?\{[^{}]*\}$/;

interface Piece {
  start: number;
  end: number;
  name: string;
  /** Text after `?`; null for `{name}`. */
  text: string | null;
  /** `{{name}}`: to be passed as `{name}`. */
  escaped: boolean;
}

/** The placeholders (known ones, and what looks like a misspelt one) of one argv element. */
function pieces(element: string): Piece[] {
  const found: Piece[] = [];
  for (const match of element.matchAll(TOKEN)) {
    const start = match.index;
    const end = start + match[0].length;
    const before = element[start - 1];
    // `${micro_batch}` belongs to a shell or to OmegaConf.
    if (before === '$') continue;
    const doubled = before === '{' && element[end] === '}';
    if (doubled && element[start - 2] === '$') continue;
    found.push({
      start: doubled ? start - 1 : start,
      end: doubled ? end + 1 : end,
      name: match[1] as string,
      text: match[3] ?? null,
      escaped: doubled,
    });
  }
  return found;
}

function isKnown(piece: Piece): boolean {
  const names: readonly string[] = piece.text === null ? VALUE_NAMES : SWITCH_NAMES;
  return names.includes(piece.name);
}

/** The known name that was probably meant; null when nothing is near. */
function nearest(name: string): string | null {
  const plain = name.toLowerCase().replaceAll('-', '_').replaceAll('_', '');
  for (const known of VALUE_NAMES) {
    const target = known.replaceAll('_', '');
    // Short names resemble innocent words ({amp} and {map}), so only longer ones may be two letters off.
    if (editDistance(plain, target) <= (target.length > 4 ? 2 : 0)) return known;
  }
  return null;
}

/**
 * Whether it is a misspelt placeholder, which would fail in the script, far from its cause: a whole argument or flag's value,
 * any with a `?`, or inside a longer text (`{epoch}-{val_loss:.2f}`) one within two letters of a known name.
 */
function isMistake(piece: Piece, element: string): boolean {
  if (isKnown(piece)) return false;
  if (piece.text !== null) return ALONE.test(element) || nearest(piece.name) !== null;
  const bare = piece.escaped
    ? element.slice(0, piece.start) + element.slice(piece.start + 1, piece.end - 1) + element.slice(piece.end)
    : element;
  return ALONE.test(bare) || nearest(piece.name) !== null;
}

function mistake(piece: Piece): OomtuneError {
  const shown = piece.text === null ? `{${piece.name}}` : `{${piece.name}?${piece.text}}`;
  const near = nearest(piece.name);
  const known = [...VALUE_NAMES.map((n) => `{${n}}`), ...SWITCH_NAMES.map((n) => `{${n}?TEXT}`)].join(', ');
  return new OomtuneError(
    'OOMTUNE_BAD_PLACEHOLDER',
    `The command holds ${shown}, which is not a placeholder${near ? `; did you mean {${near}}?` : '.'}`,
    `Use ${known}; or double the braces, {${shown}}, to pass it on as it stands.`,
  );
}

/** The placeholders that a command uses. Throws OOMTUNE_BAD_PLACEHOLDER for a misspelt one, or one cut in two by a space. */
export function placeholders(command: readonly string[]): Set<PlaceholderName> {
  const used = new Set<PlaceholderName>();
  for (const element of command) {
    const open = /\{(?:amp|checkpointing)\?[^{}]*$/.exec(element);
    if (open) {
      throw new OomtuneError(
        'OOMTUNE_BAD_PLACEHOLDER',
        `The placeholder ${open[0]} is never closed.`,
        'Write one placeholder for each word, such as {amp?--dtype} {amp?bf16}: a placeholder cannot reach over two arguments.',
      );
    }
    for (const piece of pieces(element)) {
      if (piece.escaped) continue;
      if (isMistake(piece, element)) throw mistake(piece);
      if (!isKnown(piece)) continue;
      used.add(piece.name as PlaceholderName);
      for (const inner of piece.text === null ? [] : pieces(piece.text)) {
        if (isKnown(inner)) used.add(inner.name as PlaceholderName);
      }
    }
  }
  return used;
}

function valueFor(name: PlaceholderName, config: Config): string {
  return name === 'checkpointing' ? (config.checkpointing ? '1' : '0') : String(config[name]);
}

function fillElement(element: string, config: Config): { text: string; switched: boolean } {
  let text = '';
  let at = 0;
  let switched = false;
  for (const piece of pieces(element)) {
    if (piece.start < at) continue;
    const plain = { ...piece, escaped: false };
    let filled: string | null = null;
    if (piece.escaped) {
      // Undoubles only braces that would have meant something: `{{bos_token}}` in a chat template is the user's own.
      if (isKnown(plain) || isMistake(piece, element)) filled = element.slice(piece.start + 1, piece.end - 1);
    } else if (isKnown(piece)) {
      if (piece.text === null) filled = valueFor(piece.name as PlaceholderName, config);
      else {
        switched = true;
        const on = piece.name === 'amp' ? config.amp !== 'off' : config.checkpointing;
        filled = on ? fillElement(piece.text, config).text : '';
      }
    }
    if (filled === null) continue;
    text += element.slice(at, piece.start) + filled;
    at = piece.end;
  }
  return { text: text + element.slice(at), switched };
}

/** The command with every placeholder filled. An element that a `{name?text}` leaves empty vanishes. */
export function fillPlaceholders(command: readonly string[], config: Config): string[] {
  const argv: string[] = [];
  for (const element of command) {
    const { text, switched } = fillElement(element, config);
    if (text !== '' || !switched) argv.push(text);
  }
  return argv;
}
