import type * as z from "zod";

/**
 * Describes a validation error as the end of a sentence that starts with the value's name: "limit must be at most 1000". Passed
 * as `error` to a schema's parse, which uses it if the schema has no message for the error. The message does not contain the
 * value.
 */
export const validationMessage: z.core.$ZodErrorMap = (issue) => {
  if (issue.input === undefined && issue.code !== "unrecognized_keys" && issue.code !== "custom") return "is missing";
  switch (issue.code) {
    case "invalid_type":
      return `must be ${KINDS[issue.expected] ?? "of another type"}`;
    case "invalid_value":
      return `must be ${issue.values.length === 1 ? "" : "one of "}${issue.values.map(String).join(", ")}`;
    case "too_small":
      return boundMessage(issue.origin, issue.minimum, issue.exact, issue.inclusive ? "at least" : "more than");
    case "too_big":
      return boundMessage(issue.origin, issue.maximum, issue.exact, issue.inclusive ? "at most" : "less than");
    case "not_multiple_of":
      return `must be a multiple of ${issue.divisor}`;
    case "invalid_format":
      return FORMATS[issue.format] ?? "has an invalid format";
    case "unrecognized_keys":
      return `has unknown members: ${issue.keys.map((key) => key.slice(0, 64)).join(", ")}`;
    case "invalid_union":
      return unionMessage(issue.errors);
    case "invalid_key":
      return "has an invalid member name";
    case "invalid_element":
      return "has an invalid item";
    default:
      return "is not valid";
  }
};

const KINDS: Record<string, string> = {
  string: "text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  tuple: "a list",
  object: "an object",
  record: "an object",
  null: "null",
  date: "a date",
};

const FORMATS: Record<string, string> = {
  email: "must be an e-mail address",
  url: "must be a URL",
  guid: "must be a GUID",
  uuid: "must be a UUID",
  datetime: "must be an instant such as 2026-11-21T10:00:00Z",
  date: "must be a date such as 2026-11-21",
  base64: "must be base64",
};

/** Units of the sizes of texts and lists. Other values are numbers. */
const UNITS: Record<string, [one: string, many: string]> = {
  string: ["character", "characters"],
  array: ["item", "items"],
};

function boundMessage(origin: string, bound: number | bigint, exact: boolean | undefined, word: string): string {
  const relation = exact ? "exactly" : word;
  const unit = UNITS[origin];
  if (!unit) return `must be ${relation} ${bound}`;
  if (relation === "at least" && Number(bound) === 1) return "must not be empty";
  return `must have ${relation} ${bound} ${unit[Number(bound) === 1 ? 0 : 1]}`;
}

/** Joins the messages of a union's alternatives about the value as a whole. Messages about members are omitted. */
function unionMessage(alternatives: z.core.$ZodIssue[][]): string {
  const messages = alternatives.map((issues) => issues.find(({ path }) => path.length === 0)?.message);
  return messages.every((message) => message !== undefined) && messages.length > 0
    ? [...new Set(messages)].join(", or ")
    : "does not match any of the accepted forms";
}
