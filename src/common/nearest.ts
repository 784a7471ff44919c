import { editDistance } from './edit-distance.js';

/** The name that a misspelt word is nearest to: it begins so, or two letters or fewer lie between. Null: none is near. */
export function nearest(word: string, names: readonly string[]): string | null {
  const distances = names
    .filter((name) => !name.startsWith('_'))
    .map((name) => ({ name, distance: name.startsWith(word) && word.length > 2 ? 1 : editDistance(word, name) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = distances;
  return best !== undefined && best.distance <= 2 && best.distance < word.length ? best.name : null;
}
