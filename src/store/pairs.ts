/** What Redis replies as a flat list: field, value, field, value. */
export function pairs(fields: string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < fields.length; at += 2) record[fields[at] as string] = fields[at + 1] as string;
  return record;
}
