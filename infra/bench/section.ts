export interface Figure {
  what: string;
  value: string;
  comparedWith: string;
  bound?: string;
}

export interface Section {
  title: string;
  /** How it was measured, in a sentence or two. */
  how: string;
  figures: Figure[];
}

export const ratio = (a: number, b: number): string => (a / b).toFixed(3);
export const megabytes = (bytes: number): string => `${Math.round(bytes / 1_048_576)} MB`;
export const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
