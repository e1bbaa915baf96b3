/**
 * Returns a name between Unicode isolate marks, so that direction marks in the name don't reorder the text after it. Isolate
 * marks in the name are removed, because they could end the isolation.
 */
export const isolated = (name: string): string => `\u2068${name.replace(/[\u2066-\u2069]/g, "")}\u2069`;
