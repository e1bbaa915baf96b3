/**
 * A name inside of a sentence, between the marks that keep its own marks of direction from turning the words after it. Such marks
 * within it are left out: one could end the isolation.
 */
export const isolated = (name: string): string => `\u2068${name.replace(/[\u2066-\u2069]/g, "")}\u2069`;
