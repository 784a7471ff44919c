#!/usr/bin/env node
/**
 * Makes the documentation a site: static pages with a search, for any folder of any server, or none (`file://`).
 * `npm run docs -- [FOLDER]`; without one it is dist/site. Prints the front page's path.
 */
import { join, resolve } from 'node:path';
import { ROOT, say } from './setup/say.mjs';
import { buildSite } from './site/build.mjs';

const folder = resolve(process.argv[2] ?? join(ROOT, 'dist', 'site'));
const { pages, files, sections } = buildSite(folder);
say(`${pages} pages, ${sections} sections to search, ${files} files beside them`);
process.stdout.write(`${join(folder, 'index.html')}\n`);
