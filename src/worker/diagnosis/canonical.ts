/**
 * The form in which text is compared: lower case, without white space, control characters and box drawing, typographic
 * quotes made plain. Messages arrive wrapped at any column, boxed and recoloured; without blanks all these look the same.
 */
export function canonical(line: string): string {
  const text = line.toLowerCase().replace(BLANKS, '');
  return text.includes('\u2018') || text.includes('\u2019') ? text.replace(QUOTES, "'") : text;
}

/** Those of signals: negative, or 128 more than the signal. */
const STATUS = /exit(?:ed|s)?[^\d\n]{0,80}?(?:code|status)[^\d\n]{0,80}?(-\d{1,2}|1[2-5]\d)(?![\dx])/i;

/** What signal ended a process, however a line puts it, as signatures have it: `exitcode137`; '' if it does not say. */
export function exitCode(line: string): string {
  const code = /exit/i.test(line) ? STATUS.exec(line.slice(0, 1000))?.[1] : undefined;
  return code === undefined ? '' : `exitcode${code}`;
}

/** Without the `u` flag the class is twice as fast; written as a string since it names control characters. */
const CLASS = '[\\x00-\\x20\\x7f-\\xa0\\u2000-\\u200f\\u2028-\\u202f\\u2500-\\u257f\\ufeff]';
const BLANKS = new RegExp(`${CLASS}+`, 'g');
const BLANK = new RegExp(CLASS);
const QUOTES = /[\u2018\u2019]/g;
const WORD = /[a-z0-9_]/;

/** Whether a word begins or ends before the character that has offset `at` in the canonical form of `line`. */
export function wordBreak(line: string, at: number): boolean {
  if (at === 0) return true;
  let seen = 0;
  let before = '';
  let blank = false;
  for (const character of line.toLowerCase()) {
    if (BLANK.test(character)) {
      blank = true;
      continue;
    }
    if (seen >= at) return blank || !WORD.test(before) || !WORD.test(character);
    seen += character.length;
    before = character;
    blank = false;
  }
  return true;
}
