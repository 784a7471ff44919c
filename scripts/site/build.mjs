/** Writes the site into a folder. */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import MiniSearch from 'minisearch';
import { ROOT } from '../setup/say.mjs';
import { layout } from './layout.mjs';
import { render } from './markdown.mjs';
import { readPages } from './pages.mjs';

const ASSETS = join(ROOT, 'scripts', 'site', 'assets');

/** Fields and their weight; assets/search.js reads the index with the same. */
const SEARCH = { fields: ['title', 'page', 'text'], storeFields: ['title', 'page', 'place', 'start'], idField: 'id' };

/** Returns how many pages, sections and other files were written. Throws where a link leads nowhere. */
export function buildSite(folder) {
  const groups = readPages();
  const pages = groups.flatMap((group) => group.pages);
  const known = new Set(pages.map(({ file }) => file));
  const search = new MiniSearch(SEARCH);
  const files = new Set();
  rmSync(folder, { recursive: true, force: true });
  for (const page of pages) {
    const rendered = render(page, known);
    write(folder, page.place, layout(page, rendered, groups));
    for (const file of rendered.files) files.add(file);
    for (const { title, id, text } of rendered.sections) {
      const place = `${page.place}#${id}`;
      search.add({ id: place, title, page: page.title, text, place, start: text.slice(0, 160).trim() });
    }
  }
  for (const file of files) {
    mkdirSync(dirname(join(folder, 'files', file)), { recursive: true });
    cpSync(join(ROOT, file), join(folder, 'files', file));
  }
  cpSync(ASSETS, join(folder, 'assets'), { recursive: true });
  cpSync(join(ROOT, 'web', 'icon.svg'), join(folder, 'assets', 'icon.svg'));
  const minisearch = join(ROOT, 'node_modules', 'minisearch');
  const licence = readFileSync(join(minisearch, 'LICENSE.txt'), 'utf8').trim();
  const library = readFileSync(join(minisearch, 'dist', 'umd', 'index.js'), 'utf8').replace(/^\/\/# source.*$/m, '');
  write(folder, 'assets/minisearch.js', `/*!\n${licence}\n*/\n${library}`);
  // a script, since a page on a disk may not fetch a file
  write(
    folder,
    'assets/search-index.js',
    `window.oomtuneIndex(${JSON.stringify(search)}, ${JSON.stringify(SEARCH)});\n`,
  );
  return { pages: pages.length, sections: search.documentCount, files: files.size };
}

function write(folder, place, text) {
  const path = join(folder, place);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
