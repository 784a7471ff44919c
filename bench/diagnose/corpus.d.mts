/** A text that a program prints as it fails, and what it is. */
export interface Form {
  signature: string;
  version: string;
  text: string;
  class: string;
  /** Null: not known. */
  exit: number | null;
  ambiguous: boolean;
  frame?: string;
  then?: string;
}

export interface HeldOut {
  class: string;
  /** The first verdict, made before any signature was written for it; left out: it was right. */
  first?: string;
  exit?: number;
  /** Where its shape was seen: which program, in which kind of place. */
  shape: string;
  log: string;
}

export function readForms(): Form[];
export function readHeldOut(): HeldOut[];
export function randomFrom(seed: number): () => number;
export function wholeLog(form: Form, random: () => number): string;
export const MUTATIONS: Record<string, (log: string, random: () => number) => string | null>;
export function generate(seed?: number): Generator<{ form: Form; mutation: string; log: string }>;
