/** What stands around a page's text. All addresses are relative: the site works under any path. */
import { dirname, posix } from 'node:path';

const safe = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

export function layout(page, { html, headings }, groups) {
  const to = (place) => posix.relative(dirname(page.place), place);
  const link = ({ place, title }) =>
    `<li><a href="${to(place)}"${place === page.place ? ' aria-current="page"' : ''}>${safe(title)}</a></li>`;
  const nav = groups
    .map(({ title, pages }) => `<h2>${title}</h2>\n<ul>\n${pages.map(link).join('\n')}\n</ul>`)
    .join('\n');
  const parts = headings.filter(({ level }) => level === 2);
  const contents = parts.map(({ id, title }) => `<li><a href="#${id}">${safe(title)}</a></li>`).join('\n');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${safe(page.title)}${page.title === 'oomtune' ? '' : ' · oomtune'}</title>
<link rel="stylesheet" href="${to('assets/site.css')}">
<link rel="icon" href="${to('assets/icon.svg')}">
<script defer src="${to('assets/minisearch.js')}"></script>
<script defer src="${to('assets/search.js')}" data-root="${to('index.html').replace(/index\.html$/, '')}"></script>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header>
<a class="home" href="${to('index.html')}">oomtune</a>
<form role="search" hidden>
<label for="search">Search</label>
<input id="search" type="search" autocomplete="off" placeholder="an error, an option, a framework" aria-controls="found">
</form>
<noscript>The search needs JavaScript; all pages are listed below.</noscript>
</header>
<div id="found" role="region" aria-label="Search results" aria-live="polite" hidden></div>
<div class="columns">
<main id="text">
${html}</main>
${parts.length > 2 ? `<nav class="contents" aria-label="On this page"><h2>On this page</h2>\n<ul>\n${contents}\n</ul></nav>` : ''}
<nav class="pages" aria-label="All pages">
${nav}
</nav>
</div>
</body>
</html>
`;
}
