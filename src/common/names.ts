/** The known name nearest to a misspelt word: a completion of it, or at most two letters away. Null: none. */
export function nearest(word: string, names: readonly string[]): string | null {
  const distances = names
    .filter((name) => !name.startsWith('_'))
    .map((name) => ({ name, distance: name.startsWith(word) && word.length > 2 ? 1 : editDistance(word, name) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = distances;
  return best !== undefined && best.distance <= 2 && best.distance < word.length ? best.name : null;
}

/** Levenshtein distance: letters to change, add or leave out. */
export function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const changed = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}

/** `train` of `train-1a2b3c4d`, a name that oomtune made; null: no digest at its end. */
export const stemOfName = (name: string): string | null => /^(.+)-[0-9a-f]{8}$/.exec(name)?.[1] ?? null;

/** Whether a person who writes `word` can mean what is called `name`. */
export const answersTo = (name: string, word: string): boolean => name === word || stemOfName(name) === word;

/** Of a name with `*` for any letters and `?` for one. */
export function namePattern(pattern: string): RegExp {
  const escaped = pattern
    .replace(/[\\^$.|+()[\]{}]/g, '\\$&')
    .replace(/\*+/g, '.*')
    .replaceAll('?', '.');
  return new RegExp(`^${escaped}$`, 'u');
}
