import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { PACKAGE_ROOT } from '../../common/home.js';

export interface Asset {
  type: string;
  etag: string;
  body: Buffer;
}

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * The page's own files by the path they are asked for, read once: nothing that a request says ever reaches the file
 * system. The chart library comes from the package that it is installed with.
 */
export function loadAssets(folder = join(PACKAGE_ROOT, 'web')): Map<string, Asset> {
  const assets = new Map<string, Asset>();
  const add = (path: string, file: string): void => {
    const type = TYPES[extname(file)];
    if (type === undefined) return;
    const body = readFileSync(file);
    assets.set(path, { type, body, etag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"` });
  };
  for (const name of readdirSync(folder)) add(`/${name}`, join(folder, name));
  const uplot = dirname(createRequire(import.meta.url).resolve('uplot/package.json'));
  add('/uplot.js', join(uplot, 'dist', 'uPlot.esm.js'));
  add('/uplot.css', join(uplot, 'dist', 'uPlot.min.css'));
  const page = assets.get('/index.html');
  if (page !== undefined) assets.set('/', page);
  return assets;
}
