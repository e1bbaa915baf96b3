import { type Constraint, parseConstraint } from "./route-constraints.ts";

/*
 * Parses ASP.NET Core route templates, and matches the paths of requests with them:
 * https://learn.microsoft.com/aspnet/core/fundamentals/routing#route-templates
 */

/** A parsed template, for example `files/{name}.{extension?}`. */
export interface Template {
  /** Segments between slashes. Each is a list of literals and parameters, for example `{name}`, `.`, `{extension?}`. */
  segments: Part[][];
}

type Part = { kind: "literal"; text: string } | Parameter;

interface Parameter {
  kind: "parameter";
  name: string;
  optional: boolean;
  catchAll: boolean;
  defaultValue: string | undefined;
  constraints: Constraint[];
}

/**
 * Parses a template.
 * @throws Error with the reason why the template is invalid. The host then does not serve the function.
 */
export function parseTemplate(template: string): Template {
  const text = template.replace(/^(~\/|\/)/, "");
  if (text.startsWith("~")) throw new Error("a template cannot start with '~' unless followed by '/'");
  const segments: Part[][] = [];
  let position = 0;
  while (position < text.length) {
    if (text[position] === "/") throw new Error("a template cannot contain two '/' in a row");
    const parts: Part[] = [];
    while (position < text.length && text[position] !== "/") {
      const isParameter = text[position] === "{" && text[position + 1] !== "{";
      const { content, end } = isParameter ? scanParameter(text, position + 1) : scanLiteral(text, position);
      parts.push(isParameter ? parseParameter(content) : { kind: "literal", text: content });
      position = end;
    }
    checkSegment(parts);
    segments.push(parts);
    position += 1;
  }
  checkTemplate(segments);
  return { segments };
}

/** Reads a parameter from after its `{` to its `}`. `{{` and `}}` in it are escaped braces. */
function scanParameter(text: string, start: number): { content: string; end: number } {
  let content = "";
  for (let position = start; position < text.length; position += 1) {
    const char = text[position]!;
    if (char !== "{" && char !== "}") content += char;
    else if (text[position + 1] === char) {
      content += char;
      position += 1;
    } else if (char === "}") return { content, end: position + 1 };
    else throw new Error("a parameter cannot contain '{'");
  }
  throw new Error("a parameter is not closed by '}'");
}

/** Reads literal text up to the next `/` or `{`. `{{` and `}}` in it are escaped braces. */
function scanLiteral(text: string, start: number): { content: string; end: number } {
  let content = "";
  let position = start;
  for (; position < text.length && text[position] !== "/"; position += 1) {
    const char = text[position]!;
    if (char === "?") throw new Error("a literal cannot contain '?'");
    if (char === "{" || char === "}") {
      if (text[position + 1] !== char) {
        if (char === "{") break;
        throw new Error("a literal cannot contain a single '}'");
      }
      position += 1;
    }
    content += char;
  }
  return { content, end: position };
}

/** Parses the text between the braces: `name`, `*name`, `name?`, `name=default`, `name:constraint(1,2):constraint`. */
function parseParameter(content: string): Parameter {
  const catchAll = content.startsWith("*");
  let text = content.replace(/^\*{1,2}/, "");
  const optional = text.endsWith("?");
  if (optional) text = text.slice(0, -1);
  const name = /^[^:=]*/.exec(text)![0];
  if (name === "" || /[/{}?*]/.test(name)) throw new Error(`"${name}" is not a parameter name`);

  const constraints: Constraint[] = [];
  let remaining = text.slice(name.length);
  while (remaining.startsWith(":")) {
    // Matches one constraint, such as `:int` or `:length(2,5)`. Its arguments end at the `)` before `:`, `=` or the end of the
    // text.
    const match = /^:(\w+\(.*?\)(?=$|[:=])|[^:=(]*)/s.exec(remaining)!;
    if (match[1] !== "") constraints.push(parseConstraint(match[1]!));
    remaining = remaining.slice(match[0].length);
    if (remaining.startsWith("(")) throw new Error(`the constraints of "${name}" are invalid`);
  }
  const defaultValue = remaining.startsWith("=") ? remaining.slice(1) : undefined;
  if (optional && catchAll) throw new Error("a catch-all parameter cannot be optional");
  if (optional && defaultValue !== undefined) throw new Error("an optional parameter cannot have a default");
  return { kind: "parameter", name, optional, catchAll, defaultValue, constraints };
}

function checkSegment(parts: Part[]): void {
  if (parts.length === 1) return;
  for (const [index, part] of parts.entries()) {
    if (part.kind !== "parameter") continue;
    const previous = parts[index - 1];
    if (part.catchAll) throw new Error("a catch-all parameter must be a segment of its own");
    if (previous?.kind === "parameter") throw new Error("two parameters need a literal between them");
    if (part.optional && (index !== parts.length - 1 || previous?.text !== ".")) {
      throw new Error("an optional parameter in a segment must be last and follow a '.'");
    }
  }
}

function checkTemplate(segments: Part[][]): void {
  const names = new Set<string>();
  for (const [index, segment] of segments.entries()) {
    for (const part of segment) {
      if (part.kind !== "parameter") continue;
      if (part.catchAll && index !== segments.length - 1) throw new Error("a catch-all parameter must be last");
      if (names.has(part.name.toLowerCase())) throw new Error(`the parameter "${part.name}" occurs twice`);
      names.add(part.name.toLowerCase());
    }
  }
}

/**
 * Matches a path.
 * @param path Decoded path with resolved dot segments, starting with "/".
 * @returns the route parameters, without missing optional parameters and empty catch-alls; undefined if the path does not match
 */
export function matchTemplate({ segments }: Template, path: string): Record<string, string> | undefined {
  const pathSegments = path.slice(1).split("/");
  // One trailing slash is ignored. A path with another empty segment does not match, except in a catch-all.
  if (pathSegments.at(-1) === "") pathSegments.pop();
  const params: Record<string, string> = {};
  let position = 0;
  for (const segment of segments) {
    const [part] = segment as [Part];
    const value = pathSegments[position];
    if (value === "") return undefined;
    if (part.kind === "parameter" && part.catchAll) {
      // From the path itself, because a catch-all keeps a trailing slash.
      const remaining = path.slice(1).split("/").slice(position).join("/");
      const caught = remaining === "" ? part.defaultValue : remaining;
      if (caught !== undefined) params[part.name] = caught;
      position = pathSegments.length;
      break;
    }
    if (value === undefined) {
      if (segment.length > 1 || part.kind === "literal") return undefined;
      if (part.defaultValue !== undefined) params[part.name] = part.defaultValue;
      else if (!part.optional) return undefined;
      continue;
    }
    if (!matchSegment(segment, value, params)) return undefined;
    position += 1;
  }
  if (position < pathSegments.length) return undefined;
  return constraintsHold(segments, params) ? params : undefined;
}

function matchSegment(segment: Part[], value: string, params: Record<string, string>): boolean {
  const [firstPart] = segment as [Part];
  if (segment.length === 1) {
    if (firstPart.kind === "literal") return firstPart.text.toUpperCase() === value.toUpperCase();
    params[firstPart.name] = value;
    return true;
  }
  const lastPart = segment.at(-1)!;
  return (
    matchParts(segment, value, params) ||
    // `{name}.{extension?}` also matches without the dot.
    (lastPart.kind === "parameter" && lastPart.optional && matchParts(segment.slice(0, -2), value, params))
  );
}

/**
 * Matches a segment with several parts, and adds its parameters to `params`. ASP.NET Core matches from the right: with
 * `{name}.{extension}`, `a.b.c` has the extension `c`. Greedy groups of a regular expression find the same split.
 */
function matchParts(segment: Part[], value: string, params: Record<string, string>): boolean {
  const source = segment.map((part) => (part.kind === "literal" ? escapeRegExp(part.text) : "(.+)")).join("");
  const match = new RegExp(`^${source}$`, "is").exec(value);
  if (match === null) return false;
  const parameters = segment.filter((part) => part.kind === "parameter");
  for (const [index, part] of parameters.entries()) params[part.name] = match[index + 1]!;
  return true;
}

/** Returns whether the parameters satisfy their constraints. A missing parameter with constraints must be optional. */
function constraintsHold(segments: Part[][], params: Record<string, string>): boolean {
  return segments.flat().every((part) => {
    if (part.kind === "literal") return true;
    const value = params[part.name];
    if (value === undefined) return part.optional || part.constraints.length === 0;
    return part.constraints.every((holds) => holds(value));
  });
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
