/**
 * The form in which text is compared: lower case, without white space and box drawing, typographic quotes made plain.
 * Messages arrive wrapped at any column, boxed and recoloured; without blanks all these look the same.
 */
export interface Canonical {
  text: string;
  /** 1 where a blank (or the start of a line) stood before that character: word boundaries that `text` has lost. */
  gap: Uint8Array;
}

export function canonicalise(line: string): Canonical {
  const gap = new Uint8Array(line.length + 1);
  const lower = line.toLowerCase();
  // Lower case may change the length of exotic text: then go by the original, which only loses those letters' case.
  const source = lower.length === line.length ? lower : line;
  let text = '';
  let start = -1;
  let length = 0;
  let blank = true;
  for (let i = 0; i < source.length; i++) {
    const code = source.charCodeAt(i);
    if (isBlank(code)) {
      if (start >= 0) text += source.slice(start, i);
      start = -1;
      blank = true;
      continue;
    }
    if (blank) gap[length] = 1;
    blank = false;
    if (code === 0x2018 || code === 0x2019) {
      if (start >= 0) text += source.slice(start, i);
      text += "'";
      start = -1;
    } else if (start < 0) start = i;
    length += 1;
  }
  if (start >= 0) text += start === 0 ? source : source.slice(start);
  return { text, gap };
}

/** Canonical text alone. */
export function canonical(line: string): string {
  return canonicalise(line).text;
}

function isBlank(code: number): boolean {
  return code <= 32 || code === 127 || code === 0xa0 || code === 0xfeff || (code >= 0x2500 && code <= 0x257f);
}
