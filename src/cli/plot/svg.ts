/** Just enough of SVG: elements from attributes, with everything escaped. */

type Attributes = Record<string, string | number>;

export function element(name: string, attributes: Attributes, ...children: string[]): string {
  const shown = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeText(figure(value))}"`);
  return children.length === 0
    ? `<${name}${shown.join('')}/>`
    : `<${name}${shown.join('')}>${children.join('')}</${name}>`;
}

/** A text element; `content` may hold anything. */
export function label(content: string, attributes: Attributes): string {
  return element('text', attributes, escapeText(content));
}

/** Text from outside may hold what XML does not allow at all: control characters become spaces. */
export function escapeText(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, ' ')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

function figure(value: string | number): string {
  return typeof value === 'number' ? String(Number(value.toFixed(2))) : value;
}
