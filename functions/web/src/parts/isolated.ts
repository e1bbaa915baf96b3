/** A name inside of a sentence, between the marks that keep its own marks of direction from turning the words after it. */
export const isolated = (name: string): string => `\u2068${name}\u2069`;
