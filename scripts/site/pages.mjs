/** Which files are pages, where they stand in the site, and in which order. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../setup/say.mjs';

/** Pages beside those of docs/. */
const OUTSIDE = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md'];

/** Groups of the navigation. Pages that are named come first, in this order; the rest of a folder follows by name. */
const GROUPS = [
  {
    title: 'Start',
    first: ['docs/index.md', 'README.md', 'docs/guides/first-job.md', 'docs/compare.md', 'docs/glossary.md'],
  },
  {
    title: 'Guides',
    folder: 'docs/guides/',
    first: [
      'python',
      'frameworks',
      'hf-trainer',
      'nanogpt',
      'lightning',
      'timm',
      'torchrun',
      'presets',
      'budgets',
      'search',
      'hook',
    ].map((name) => `docs/guides/${name}.md`),
  },
  {
    title: 'Reference',
    folder: 'docs/reference/',
    first: ['cli', 'errors', 'configuration'].map((name) => `docs/reference/${name}.md`),
  },
  {
    title: 'Inside',
    folder: 'docs/',
    first: ['docs/architecture.md', 'CONTRIBUTING.md', 'docs/dependencies.md', 'CHANGELOG.md'],
  },
];

/** Path in the site of a page of the repository. */
export const placeOf = (file) =>
  file
    .replace(/^docs\//, '')
    .replace(/^[A-Z]+(?=\.md$)/, (name) => name.toLowerCase())
    .replace(/\.md$/, '.html');

/** `[{ title, pages: [{ file, place, text, title }] }]`: every page once. */
export function readPages() {
  const inside = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`);
  const left = new Set([...inside, ...OUTSIDE].sort());
  return GROUPS.map(({ title, folder, first }) => {
    const named = first.filter((file) => existsSync(join(ROOT, file)));
    const rest = () => [...left].filter((file) => folder !== undefined && file.startsWith(folder));
    for (const file of named) left.delete(file);
    const files = [...named, ...(folder === 'docs/' ? [...left] : rest())];
    for (const file of files) left.delete(file);
    return { title, pages: files.map(readPage) };
  });
}

function readPage(file) {
  const text = readFileSync(join(ROOT, file), 'utf8');
  const [, title] = /^# (.+)$/m.exec(text) ?? [];
  if (title === undefined) throw new Error(`${file} has no title.`);
  return { file, place: placeOf(file), text, title: title.replaceAll('`', '') };
}
