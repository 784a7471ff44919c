import { OomtuneError } from '../../common/errors.js';
import { editDistance } from '../../common/names.js';
import { KNOB_NAME, type KnobValue } from '../../contract/knob.js';
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

const NONE: ReadonlySet<string> = new Set();

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
function isMistake(piece: Piece, element: string, knobs: ReadonlySet<string> = NONE): boolean {
  if (isKnown(piece) || (piece.text === null && knobs.has(piece.name))) return false;
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
    `Use ${known}, or a name of your own for what find-batch --knob searches; or double the braces, {${shown}}, to pass it on as it stands.`,
  );
}

/**
 * The command's own knobs: each stands as a whole word or a flag's value, and no known placeholder is near enough to be meant. Only
 * a search with `--knob`, or what it recorded, gives them a value.
 */
export function knobNames(command: readonly string[]): Set<string> {
  const names = new Set<string>();
  for (const element of command) {
    for (const piece of pieces(element)) {
      const own = !piece.escaped && piece.text === null && !isKnown(piece) && nearest(piece.name) === null;
      if (own && KNOB_NAME.test(piece.name) && ALONE.test(element)) names.add(piece.name);
    }
  }
  return names;
}

/** The placeholders that a command uses, beside `knobs` of its own. Throws OOMTUNE_BAD_PLACEHOLDER for a misspelt one, or one cut in two by a space. */
export function placeholders(command: readonly string[], knobs: ReadonlySet<string> = NONE): Set<PlaceholderName> {
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
      if (isMistake(piece, element, knobs)) throw mistake(piece);
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
    } else if (piece.text === null && piece.name === config.knob?.name) filled = String(config.knob.value);
    else if (isKnown(piece)) {
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

/** The command with `{name}` of one knob as its value, and every other placeholder as it is. */
export function withKnob(command: readonly string[], { name, value }: KnobValue): string[] {
  return command.map((element) => {
    const pieceOf = pieces(element).filter((piece) => !piece.escaped && piece.text === null && piece.name === name);
    return pieceOf.reduceRight((text, { start, end }) => `${text.slice(0, start)}${value}${text.slice(end)}`, element);
  });
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
