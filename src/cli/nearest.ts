import { editDistance } from '../common/edit-distance.js';

/** The verb that a misspelt word is nearest to, if two letters or fewer lie between. */
export function nearest(word: string, names: string[]): string | null {
  const distances = names
    .filter((name) => !name.startsWith('_'))
    .map((name) => ({ name, distance: name.startsWith(word) && word.length > 2 ? 1 : editDistance(word, name) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = distances;
  return best !== undefined && best.distance <= 2 && best.distance < word.length ? best.name : null;
}
