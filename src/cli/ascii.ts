/** What stands for the signs that a terminal without UTF-8 cannot show. */
const SIGNS: Record<string, string> = {
  ...{
    '✓': '+',
    '✗': 'x',
    '×': 'x',
    '…': '...',
    '→': '->',
    '←': '<-',
    '–': '-',
    '—': '-',
    '’': "'",
    '‘': "'",
    '“': '"',
    '”': '"',
    '·': '.',
  },
  ...{ '█': '#', '▓': '=', '▒': ':', '░': '.', '▚': '%', '│': '|', '┤': '|', '└': '+', '─': '-', '╌': '-', '●': 'o' },
};

/** Whether the locale says that only ASCII can be shown (LC_ALL=C); where nothing is set nothing is said. */
export function asciiOnly(env: NodeJS.ProcessEnv = process.env): boolean {
  const locale = env.LC_ALL || env.LC_CTYPE || env.LANG;
  return locale !== undefined && locale !== '' && !/utf-?8/i.test(locale);
}

/** The text with signs of ASCII alone; what has none of its own (a name in another alphabet) becomes a question mark. */
export function ascii(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: everything beyond ASCII
  return text.replace(/[^\x00-\x7f]/gu, (sign) => SIGNS[sign] ?? other(sign));
}

function other(sign: string): string {
  const code = sign.codePointAt(0) as number;
  if (code === 0x2800) return ' ';
  if (code > 0x2800 && code <= 0x28ff) return '.'; // dots of a curve
  if (code >= 0x2581 && code <= 0x2588) return '_.:-=+*#'[code - 0x2581] as string; // bars of a history
  return sign.normalize('NFKD').replace(/[^\x20-\x7e]/g, '') || '?';
}
