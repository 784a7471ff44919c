import { TextDecoder } from 'node:util';

/** Makes UTF-8 of redirected output: PowerShell writes UTF-16 with a byte order mark. All else passes as it is. */
export class Decoder {
  private decoder: TextDecoder | null | undefined;
  private first: Uint8Array | null = null;

  push(chunk: Uint8Array): Uint8Array {
    let bytes = chunk;
    if (this.decoder === undefined) {
      bytes = this.first ? Buffer.concat([this.first, chunk]) : chunk;
      if (bytes.length < 4) {
        // Too little to tell; a copy, since the caller may reuse its buffer.
        this.first = Buffer.from(bytes);
        return EMPTY;
      }
      this.decoder = decoderFor(bytes);
      this.first = null;
    }
    return this.decoder ? Buffer.from(this.decoder.decode(bytes, { stream: true })) : bytes;
  }

  finish(): Uint8Array {
    if (this.decoder) return Buffer.from(this.decoder.decode());
    return this.first ?? EMPTY;
  }
}

const EMPTY = new Uint8Array(0);

function decoderFor(bytes: Uint8Array): TextDecoder | null {
  const [a, b, c, d] = bytes as unknown as [number, number, number, number];
  if (a === 0xff && b === 0xfe) return new TextDecoder('utf-16le');
  if (a === 0xfe && b === 0xff) return new TextDecoder('utf-16be');
  // Without a mark, ASCII in UTF-16 still has a NUL in every second byte.
  if (a !== 0 && b === 0 && c !== 0 && d === 0) return new TextDecoder('utf-16le');
  if (a === 0 && b !== 0 && c === 0 && d !== 0) return new TextDecoder('utf-16be');
  return null;
}
