/** Returns a number with its noun in singular or plural form, such as "1 vault" or "1,200 vaults". */
export const counted = (count: number, singular: string, plural = `${singular}s`): string =>
  `${count.toLocaleString()} ${count === 1 ? singular : plural}`;
