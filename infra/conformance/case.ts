/**
 * One comparison of the expected with the actual result of the service and a program that other people wrote (foreign program).
 */
export interface Case {
  name: string;
  /** The expected result: a text, or the source of a regular expression. */
  expected: string;
  /** The actual result. Starts with `error: ` if the case threw. */
  seen: string;
  passed: boolean;
}

/** Maximum length of the text of an error, which docs/works-with.md shows in a table cell. */
const MAX_ERROR_LENGTH = 400;

/** Runs a case. Never throws: an error is a result that differs from the expected one. */
export async function observe(name: string, expected: string | RegExp, run: () => Promise<string>): Promise<Case> {
  const seen = await run().catch((error: unknown) => `error: ${(error as Error).message.slice(0, MAX_ERROR_LENGTH)}`);
  return typeof expected === "string"
    ? { name, expected, seen, passed: seen === expected }
    : { name, expected: expected.source, seen, passed: expected.test(seen) };
}
