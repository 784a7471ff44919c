/** A page's Markdown as HTML: headings with GitHub's anchors, links between pages, tables and code that scroll by themselves. */
import { existsSync, statSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import MarkdownIt from 'markdown-it';
import { ROOT } from '../setup/say.mjs';
import { placeOf } from './pages.mjs';

/** As GitHub names a heading, so that one link does for both. */
export function slugger() {
  const used = new Map();
  return (title) => {
    const slug = title
      .trim()
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
      .replace(/\s/g, '-');
    const times = used.get(slug) ?? 0;
    used.set(slug, times + 1);
    return times === 0 ? slug : `${slug}-${times}`;
  };
}

/** The page's own words, without marks of Markdown and markers of our scripts. */
const plain = (tokens) =>
  tokens
    .map((token) =>
      token.children
        ? plain(token.children)
        : ['text', 'code_inline'].includes(token.type)
          ? token.content
          : token.type === 'softbreak'
            ? ' '
            : '',
    )
    .join('');

/**
 * Returns `{ html, sections, headings, files }`: what is found by a search, what the page's contents lists, and the files
 * that it links to which are no pages. Throws where a link leads nowhere.
 */
export function render(page, known) {
  // README's small print and picture are HTML; all text is our own
  const markdown = new MarkdownIt({ html: true, linkify: false });
  const { escapeHtml } = markdown.utils;
  const files = new Set();
  const headings = [];
  const sections = [];
  const slug = slugger();

  const target = (href) => {
    const [path, anchor] = href.split('#');
    if (path === '') return href;
    const file = posix.normalize(posix.join(dirname(page.file), path));
    const end = anchor === undefined ? '' : `#${anchor}`;
    if (known.has(file)) return posix.relative(dirname(page.place), placeOf(file)) + end;
    if (!existsSync(join(ROOT, file))) throw new Error(`${page.file} links to ${href}, which is not there.`);
    if (statSync(join(ROOT, file)).isDirectory()) throw new Error(`${page.file} links to ${href}, which is a folder.`);
    files.add(file);
    return posix.relative(dirname(page.place), `files/${file}`) + end;
  };

  const tokens = markdown.parse(page.text.replace(/<!--[\s\S]*?-->\n?/g, ''), {});
  tokens.forEach((token, at) => {
    if (token.type === 'heading_open') {
      const title = plain([tokens[at + 1]]);
      const id = slug(title);
      token.attrSet('id', id);
      headings.push({ level: Number(token.tag.slice(1)), title, id });
      sections.push({ title, id, text: '' });
    } else if (token.type === 'inline' && tokens[at - 1]?.type !== 'heading_open') {
      const section = sections.at(-1);
      if (section) section.text += `${plain([token])} `;
    } else if (token.type === 'fence' && sections.length > 0) sections.at(-1).text += `${token.content} `;
    for (const child of token.children ?? []) {
      const name = child.type === 'link_open' ? 'href' : child.type === 'image' ? 'src' : null;
      const value = name === null ? null : child.attrGet(name);
      if (value !== null && !/^[a-z]+:/.test(value)) child.attrSet(name, target(value));
    }
    // a cell without a word heads nothing
    if (token.type === 'th_open' && tokens[at + 1]?.content === '') token.tag = 'td';
    if (token.type === 'th_close' && tokens[at - 1]?.content === '') token.tag = 'td';
    if (token.type === 'html_block') {
      token.content = token.content.replace(
        /(src|href|srcset)="((?![a-z]+:)[^"]+)"/g,
        (_all, name, value) => `${name}="${target(value)}"`,
      );
    }
  });

  const { rules } = markdown.renderer;
  rules.table_open = () => '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>\n';
  rules.table_close = () => '</table></div>\n';
  rules.fence = (all, at) => `<pre tabindex="0"><code>${escapeHtml(all[at].content)}</code></pre>\n`;
  rules.heading_close = (all, at) => {
    const open = all[at - 2];
    const id = open.attrGet('id');
    return open.tag === 'h1'
      ? '</h1>\n'
      : ` <a class="anchor" href="#${id}" aria-label="Link to this section">#</a></${open.tag}>\n`;
  };
  return { html: markdown.renderer.render(tokens, markdown.options, {}), sections, headings, files };
}
