/** Returns a number with its noun, such as `1 vault` or `2 vaults`. For nouns whose plural adds an "s". */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;
