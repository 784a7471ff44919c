import { crc32, deflateSync } from 'node:zlib';

export type Colour = [red: number, green: number, blue: number];

/** Pixels that shapes are drawn into with soft edges, and written as PNG. Positions are in the picture's own units. */
export class Canvas {
  readonly #width: number;
  readonly #height: number;
  readonly #pixels: Uint8Array;

  constructor(
    width: number,
    height: number,
    /** Pixels for each unit. */
    private readonly scale: number,
  ) {
    this.#width = Math.round(width * scale);
    this.#height = Math.round(height * scale);
    this.#pixels = new Uint8Array(this.#width * this.#height * 3).fill(255);
  }

  rectangle(x: number, y: number, width: number, height: number, colour: Colour): void {
    const { scale } = this;
    const [left, top, right, bottom] = [x * scale, y * scale, (x + width) * scale, (y + height) * scale];
    const part = (at: number, from: number, to: number): number => Math.min(at + 1, to) - Math.max(at, from);
    this.#each(left, top, right, bottom, colour, (px, py) => part(px, left, right) * part(py, top, bottom));
  }

  disc(x: number, y: number, radius: number, colour: Colour): void {
    const [cx, cy, r] = [x * this.scale, y * this.scale, radius * this.scale];
    this.#each(
      cx - r - 1,
      cy - r - 1,
      cx + r + 1,
      cy + r + 1,
      colour,
      (px, py) => r + 0.5 - Math.hypot(px + 0.5 - cx, py + 0.5 - cy),
    );
  }

  /** With round ends; a line of no length is a dot. */
  line(x1: number, y1: number, x2: number, y2: number, width: number, colour: Colour): void {
    const { scale } = this;
    const [ax, ay, bx, by, half] = [x1 * scale, y1 * scale, x2 * scale, y2 * scale, (width * scale) / 2];
    const [dx, dy] = [bx - ax, by - ay];
    const square = dx * dx + dy * dy;
    const reach = half + 1;
    this.#each(
      Math.min(ax, bx) - reach,
      Math.min(ay, by) - reach,
      Math.max(ax, bx) + reach,
      Math.max(ay, by) + reach,
      colour,
      (px, py) => {
        const [x, y] = [px + 0.5, py + 0.5];
        const along = square === 0 ? 0 : Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / square));
        return half + 0.5 - Math.hypot(x - ax - along * dx, y - ay - along * dy);
      },
    );
  }

  /** Dashes and gaps of these lengths. */
  dashed(
    x1: number,
    y1: number,
    x2: number,
    y2: number,
    width: number,
    colour: Colour,
    [dash, gap]: [number, number],
  ): void {
    const length = Math.hypot(x2 - x1, y2 - y1);
    const at = (distance: number): [number, number] => {
      const part = length === 0 ? 0 : Math.min(1, distance / length);
      return [x1 + part * (x2 - x1), y1 + part * (y2 - y1)];
    };
    for (let from = 0; from < length; from += dash + gap)
      this.line(...at(from), ...at(Math.min(length, from + dash)), width, colour);
  }

  /** `cover`: the part of a pixel that is covered, beyond 0 and 1 too. */
  #each(
    left: number,
    top: number,
    right: number,
    bottom: number,
    colour: Colour,
    cover: (x: number, y: number) => number,
  ): void {
    for (let y = Math.max(0, Math.floor(top)); y < Math.min(this.#height, Math.ceil(bottom)); y += 1) {
      for (let x = Math.max(0, Math.floor(left)); x < Math.min(this.#width, Math.ceil(right)); x += 1) {
        const part = Math.max(0, Math.min(1, cover(x, y)));
        if (part === 0) continue;
        const at = (y * this.#width + x) * 3;
        for (let n = 0; n < 3; n += 1)
          this.#pixels[at + n] = Math.round((this.#pixels[at + n] ?? 0) * (1 - part) + (colour[n] ?? 0) * part);
      }
    }
  }

  /** As PNG (https://www.w3.org/TR/png-3): eight bits for each of red, green and blue. `text`: what it shows, in words. */
  png(text: string): Buffer {
    const header = Buffer.alloc(13);
    header.writeUInt32BE(this.#width, 0);
    header.writeUInt32BE(this.#height, 4);
    header.set([8, 2, 0, 0, 0], 8);
    const row = this.#width * 3;
    const lines = Buffer.alloc((row + 1) * this.#height); // each begins with its filter: none
    for (let y = 0; y < this.#height; y += 1)
      lines.set(this.#pixels.subarray(y * row, (y + 1) * row), y * (row + 1) + 1);
    return Buffer.concat([
      Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
      chunk('IHDR', header),
      chunk('iTXt', Buffer.from(`Description\0\0\0\0\0${text}`)),
      chunk('IDAT', deflateSync(lines, { level: 9 })),
      chunk('IEND', Buffer.alloc(0)),
    ]);
  }
}

function chunk(name: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name, 'latin1'), data]);
  const whole = Buffer.alloc(named.length + 8);
  whole.writeUInt32BE(data.length, 0);
  whole.set(named, 4);
  whole.writeUInt32BE(crc32(named), named.length + 4);
  return whole;
}
