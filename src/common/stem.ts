/** What stands before the digest in a name that oomtune made: `train` of `train-1a2b3c4d`; null where there is no digest. */
export function stemOfName(name: string): string | null {
  return /^(.+)-[0-9a-f]{8}$/.exec(name)?.[1] ?? null;
}

/** Whether a person who writes `word` can mean what is called `name`. */
export const answersTo = (name: string, word: string): boolean => name === word || stemOfName(name) === word;
