/** Returns a number with its noun in singular or plural form, such as "1 vault" or "1,200 vaults". */
export const counted = (count: number, singular: string, plural = `${singular}s`): string =>
  `${count.toLocaleString()} ${count === 1 ? singular : plural}`;

/**
 * Returns a number as text, or "Not read" instead of a 0 that would be wrong.
 *
 * @param isUnread - Whether a list that the number counts could not be read.
 */
export const countUnlessUnread = (count: number | undefined, isUnread: boolean): string =>
  count === undefined || (count === 0 && isUnread) ? "Not read" : count.toLocaleString();
