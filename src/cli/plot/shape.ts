/** The few kinds of SVG elements that a picture is made of: it is written as SVG, or drawn into pixels. */

type Attributes = Record<string, string | number>;

export interface Shape {
  name: string;
  attributes: Attributes;
  /** Shapes, and texts as they are read. */
  children: (Shape | string)[];
}

export const element = (name: string, attributes: Attributes, ...children: (Shape | string)[]): Shape => ({
  name,
  attributes,
  children,
});

/** A text element with any content. */
export const label = (content: string, attributes: Attributes): Shape => element('text', attributes, content);

export function toSvg({ name, attributes, children }: Shape): string {
  const shown = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeText(figure(value))}"`);
  if (children.length === 0) return `<${name}${shown.join('')}/>`;
  const inside = children.map((child) => (typeof child === 'string' ? escapeText(child) : toSvg(child)));
  return `<${name}${shown.join('')}>${inside.join('')}</${name}>`;
}

/** Control characters, which XML forbids, become spaces. */
export function escapeText(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, ' ')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

const figure = (value: string | number): string =>
  typeof value === 'number' ? String(Number(value.toFixed(2))) : value;
