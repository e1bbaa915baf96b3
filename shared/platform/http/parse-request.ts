import * as z from "zod";
import { validationMessage } from "../validation-message.ts";
import { Problem, type ProblemPart } from "./problem.ts";
import { queryBoolean } from "./query-boolean.ts";

/** Maximum size of a request body. */
export const MAX_BODY_BYTES = 1024 * 1024;

/** Maximum number of errors in one problem, so that an answer is not much larger than its request. */
const MAX_NAMED_ERRORS = 100;

/**
 * Query schema of a change that supports a preview.
 *
 * @param result - What the preview returns, for the description.
 */
export const previewQuery = (result: string) =>
  z.strictObject({
    preview: queryBoolean()
      .optional()
      .meta({ description: `\`true\` changes nothing and ${result}` }),
  });

const camelCase = (name: string): string => name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** Unwraps a schema from its optional, nullable, default and transform wrappers. */
function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  const def = schema._zod.def as { innerType?: z.core.$ZodType; in?: z.core.$ZodType };
  if (def.innerType) return unwrap(def.innerType);
  if (def.in) return unwrap(def.in);
  return schema;
}

/**
 * Renames the members of `value` to the names in the schema, which callers can write in camelCase or snake_case. Keys of
 * free-form records, such as tags, are not renamed.
 *
 * @throws {Problem} invalidRequest if a member is present in both spellings.
 */
export function withDeclaredNames(schema: z.core.$ZodType, value: unknown, path: string): unknown {
  const plain = unwrap(schema);
  if (Array.isArray(value) && plain instanceof z.ZodArray) {
    return value.map((item, index) => withDeclaredNames(plain.element, item, `${path}.${index}`));
  }
  if (!(plain instanceof z.ZodObject) || typeof value !== "object" || value === null || Array.isArray(value)) {
    return value;
  }
  const shape = plain.shape as Record<string, z.core.$ZodType>;
  const byCamelCase = new Map(Object.keys(shape).map((name) => [camelCase(name), name]));
  const renamed: [string, unknown][] = [];
  const usedNames = new Set<string>();
  for (const [given, member] of Object.entries(value)) {
    const name = byCamelCase.get(camelCase(given)) ?? given;
    if (usedNames.has(name)) {
      const message = `The member "${name}" is present in two spellings. Send only one of them.`;
      throw new Problem("invalidRequest", message, { errors: [{ path: `${path}.${given}`, message }] });
    }
    usedNames.add(name);
    const declared = Object.hasOwn(shape, name) ? shape[name] : undefined;
    renamed.push([name, declared ? withDeclaredNames(declared, member, `${path}.${name}`) : member]);
  }
  return Object.fromEntries(renamed);
}

/**
 * Parses `value` with `schema`.
 *
 * @throws {Problem} invalidRequest that lists all errors.
 */
export function parse<S extends z.ZodType>(schema: S, value: unknown, where: "body" | "query" | "path"): z.output<S> {
  const takesPassword = hasPassword(schema);
  const result = schema.safeParse(withDeclaredNames(schema, value, where), { error: validationMessage });
  if (result.success) return result.data;
  const errors = result.error.issues
    .flatMap((issue) => partsOf(issue, where, takesPassword))
    .slice(0, MAX_NAMED_ERRORS);
  const detail = `Correct ${errors.length === 1 ? "this" : "these"} and send the request again: ${errors
    .slice(0, 5)
    .map((error) => `${error.path}: ${error.message}`)
    .join("; ")}`;
  throw new Problem("invalidRequest", detail, { errors });
}

/**
 * Matches names of unknown members that a problem document may repeat: short and simple ones. If a body has the wrong format,
 * the whole body can be one unknown name, including secrets.
 */
const PLAIN_NAME = /^[\w .-]{1,64}$/;

/** Returns whether a member of the schema is a password, such as in the body of a sign-in. */
function hasPassword(schema: z.core.$ZodType): boolean {
  const plain = unwrap(schema);
  if (!(plain instanceof z.ZodObject)) return false;
  const members = Object.values(plain.shape as Record<string, z.core.$ZodType>);
  return members.some((member) => z.globalRegistry.get(unwrap(member))?.format === "password");
}

/**
 * Converts a validation error to the parts of a problem document.
 *
 * @param takesPassword - Whether the request contains a password. A user can type a password as a name, so the document then
 *   repeats no name of an unknown member.
 */
function partsOf(issue: z.core.$ZodIssue, where: string, takesPassword: boolean): ProblemPart[] {
  const path = [where, ...issue.path.map(String)].join(".");
  if (issue.code === "unrecognized_keys" && takesPassword) {
    return [{ path: `${path}.…`, message: "has a name that is not a member of this request" }];
  }
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({
      path: `${path}.${PLAIN_NAME.test(key) ? key : "…"}`,
      message: where === "query" ? "is not a parameter of this endpoint" : "is not a member of this request",
    }));
  }
  return [{ path, message: issue.message }];
}

/**
 * Reads and decodes a body.
 *
 * @param form - Whether a form is accepted in addition to JSON.
 * @throws {Problem} bodyTooLarge, unsupportedMediaType or malformedRequest, with the fix.
 */
export async function readBody(
  request: { headers: Headers; bytes(): Promise<Uint8Array> },
  form: boolean,
): Promise<{ present: false } | { present: true; value: unknown }> {
  if (Number(request.headers.get("content-length") ?? 0) > MAX_BODY_BYTES) throw tooLarge();
  const bytes = await request.bytes();
  if (bytes.length === 0) return { present: false };
  if (bytes.length > MAX_BODY_BYTES) throw tooLarge();
  const type = (request.headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  if (form && type === "application/x-www-form-urlencoded") {
    return { present: true, value: formValues(new URLSearchParams(textOf(bytes))) };
  }
  if (type !== "application/json" && !/^application\/[\w.-]+\+json$/.test(type)) {
    const other = form ? ", or as a form with application/x-www-form-urlencoded" : "";
    throw new Problem(
      "unsupportedMediaType",
      `Send the body as JSON with the header Content-Type: application/json${other}.`,
    );
  }
  return { present: true, value: jsonOf(textOf(bytes)) };
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Problem("malformedRequest", "The body is not valid UTF-8. Check its encoding.");
  }
}

/** Matches a JSON escape such as `\ud800`, which can be a lone surrogate. Tables and filters can't contain lone surrogates. */
const ESCAPED_SURROGATE = /\\u[dD][89a-fA-F]/;

function jsonOf(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem("malformedRequest", "The body is not valid JSON in UTF-8. Check its quotes and commas.");
  }
  if (ESCAPED_SURROGATE.test(text) && !isWellFormed(value)) {
    throw new Problem(
      "malformedRequest",
      "A text in the body contains a lone surrogate (half of a character). Send complete characters.",
    );
  }
  return value;
}

/** Returns whether no text in a JSON value, including names, contains a lone surrogate. */
export function isWellFormed(value: unknown): boolean {
  const remaining = [value];
  while (remaining.length > 0) {
    const current = remaining.pop();
    if (typeof current === "string") {
      if (!current.isWellFormed()) return false;
    } else if (typeof current === "object" && current !== null) {
      for (const [name, member] of Object.entries(current)) remaining.push(name, member);
    }
  }
  return true;
}

export const missingBody = (): Problem =>
  new Problem(
    "missingBody",
    "This endpoint needs a JSON body. If you sent one, send it with a Content-Length header: the platform drops bodies sent in chunks.",
  );

const tooLarge = (): Problem => new Problem("bodyTooLarge", `A body can have up to ${MAX_BODY_BYTES} bytes (1 MiB).`);

/**
 * Returns the query as an object.
 *
 * @throws {Problem} invalidRequest for a repeated parameter.
 */
export const readQuery = (url: URL): Record<string, string> =>
  singleValues(url.searchParams, (name) => {
    const shortName = name.slice(0, 64);
    return new Problem("invalidRequest", `Send the query parameter "${shortName}" once.`, {
      errors: [{ path: `query.${shortName}`, message: "is given more than once" }],
    });
  });

/** Returns the fields of a form. Forms are sign-ins, so the problem for a repeated field does not contain the field's name. */
const formValues = (form: URLSearchParams): Record<string, string> =>
  singleValues(
    form,
    () =>
      new Problem("invalidRequest", "Send each form field once.", {
        errors: [{ path: "body.…", message: "is given more than once" }],
      }),
  );

function singleValues(given: URLSearchParams, repeated: (name: string) => Problem): Record<string, string> {
  const values: Record<string, string> = {};
  for (const [name, value] of given) {
    if (Object.hasOwn(values, name)) throw repeated(name);
    // An assignment would not store a parameter that is called `__proto__`.
    Object.defineProperty(values, name, { value, enumerable: true, configurable: true, writable: true });
  }
  return values;
}
