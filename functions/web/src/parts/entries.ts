/** Returns the entries of a text, separated by whitespace, commas or semicolons. */
export const entriesOf = (text: string): string[] => text.split(/[\s,;]+/).filter(Boolean);
