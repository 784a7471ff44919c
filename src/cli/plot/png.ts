import { ascii } from '../output.js';
import { Canvas, type Colour } from './canvas.js';
import { ADVANCE, BASE, strokes } from './font.js';
import type { Scene } from './picture.js';
import type { Shape } from './shape.js';
import { LIGHT } from './style.js';

const SCALE = 2;
/** Units of a picture to one of a letter's grid: capitals are as high as those of the SVG's font. */
const GRID = 1.2;
const TITLE_GRID = 1.45;

/** The light form of the picture, for programs that show no SVG. */
export function png({ width, height, heading, words, shapes }: Scene): Buffer {
  const canvas = new Canvas(width, height, SCALE);
  for (const shape of shapes) draw(canvas, shape);
  return canvas.png(`${heading}. ${words}`);
}

const colour = (hex: string): Colour => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)) as Colour;

const { parts, ground, ink, soft, line, budget, bad, mark } = LIGHT;
const FILLS: Record<string, string> = { ...parts, ground, fit: mark, title: ink, head: ink, budget };
const STROKES: Record<string, string> = {
  grid: line,
  free: line,
  axis: soft,
  budget,
  prediction: mark,
  oom: bad,
  used: mark,
};

function draw(canvas: Canvas, { name, attributes, children }: Shape): void {
  const at = (key: string): number => Number(attributes[key] ?? 0);
  const kind = String(attributes.class ?? '');
  const stroke = colour(STROKES[kind] ?? soft);
  const fill = colour(FILLS[kind] ?? soft);
  if (name === 'text') write(canvas, String(children[0] ?? ''), attributes, kind, fill);
  else if (name === 'rect' && kind === 'free') outline(canvas, at('x'), at('y'), at('width'), at('height'), stroke);
  else if (name === 'rect') canvas.rectangle(at('x'), at('y'), at('width'), at('height'), fill);
  else if (name === 'circle') {
    canvas.disc(at('cx'), at('cy'), at('r') + (kind === 'used' ? 1.5 : 0), kind === 'used' ? stroke : fill);
    if (kind === 'used') canvas.disc(at('cx'), at('cy'), at('r') - 1.5, colour(ground));
  } else if (name === 'line') {
    const ends = [at('x1'), at('y1'), at('x2'), at('y2')] as const;
    const dashes = { budget: [6, 4], prediction: [2, 3] }[kind] as [number, number] | undefined;
    if (dashes === undefined) canvas.line(...ends, 1, stroke);
    else canvas.dashed(...ends, 1.5, stroke, dashes);
  } else if (name === 'path') cross(canvas, String(attributes.d), stroke);
}

function outline(canvas: Canvas, x: number, y: number, width: number, height: number, stroke: Colour): void {
  canvas.line(x, y, x + width, y, 1, stroke);
  canvas.line(x + width, y, x + width, y + height, 1, stroke);
  canvas.line(x + width, y + height, x, y + height, 1, stroke);
  canvas.line(x, y + height, x, y, 1, stroke);
}

/** Moves and lines, as a failure's cross has them: `M5 5l10 10m0 -10l-10 10`. */
function cross(canvas: Canvas, path: string, stroke: Colour): void {
  let [x, y] = [0, 0];
  for (const [, letter, dx, dy] of path.matchAll(/([Mml])(-?[\d.]+) (-?[\d.]+)/g)) {
    const [nextX, nextY] = letter === 'M' ? [Number(dx), Number(dy)] : [x + Number(dx), y + Number(dy)];
    if (letter === 'l') canvas.line(x, y, nextX, nextY, 2, stroke);
    [x, y] = [nextX, nextY];
  }
}

function write(canvas: Canvas, said: string, attributes: Shape['attributes'], kind: string, fill: Colour): void {
  const text = ascii(said);
  const bold = kind === 'title' || kind === 'head';
  const grid = kind === 'title' ? TITLE_GRID : GRID;
  const width = text.length * ADVANCE * grid;
  const turned = /translate\(([\d.]+) ([\d.]+)\) rotate\(-90\)/.exec(String(attributes.transform ?? ''));
  const [x, y] =
    turned === null ? [Number(attributes.x), Number(attributes.y)] : [Number(turned[1]), Number(turned[2])];
  const start = kind === 'end' ? -width : kind === 'middle' ? -width / 2 : 0;
  const place = (along: number, up: number): [number, number] =>
    turned === null ? [x + start + along, y + up] : [x + up, y - start - along];
  for (const [n, letter] of [...text].entries()) {
    for (const points of strokes(letter)) {
      for (let p = 1; p < points.length; p += 1) {
        const [[ax, ay], [bx, by]] = [points[p - 1], points[p]] as [[number, number], [number, number]];
        const from = place((n * ADVANCE + ax) * grid, (ay - BASE) * grid);
        const to = place((n * ADVANCE + bx) * grid, (by - BASE) * grid);
        canvas.line(...from, ...to, bold ? 1.5 : 1, fill);
      }
    }
  }
}
