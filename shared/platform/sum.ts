/** Returns the sum of a number over all items. */
export const sum = <T>(items: readonly T[], numberOf: (item: T) => number): number =>
  items.reduce((total, item) => total + numberOf(item), 0);
