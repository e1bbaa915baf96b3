import { type Constraint, parseConstraint } from "./route-constraints.ts";

/**
 * Parser and matcher of ASP.NET Core route templates:
 * https://learn.microsoft.com/aspnet/core/fundamentals/routing#route-templates
 */
export interface Template {
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
 * @throws Error that says what is invalid. The host then removes the function.
 */
export function parseTemplate(template: string): Template {
  const text = template.replace(/^(~\/|\/)/, "");
  if (text.startsWith("~")) throw new Error("a template cannot start with '~' unless followed by '/'");
  const segments: Part[][] = [];
  let at = 0;
  while (at < text.length) {
    if (text[at] === "/") throw new Error("a template cannot contain two '/' in a row");
    const parts: Part[] = [];
    while (at < text.length && text[at] !== "/") {
      const isParameter = text[at] === "{" && text[at + 1] !== "{";
      const { content, end } = isParameter ? scanParameter(text, at + 1) : scanLiteral(text, at);
      parts.push(isParameter ? parseParameter(content) : { kind: "literal", text: content });
      at = end;
    }
    checkSegment(parts);
    segments.push(parts);
    at += 1;
  }
  checkTemplate(segments);
  return { segments };
}

function scanParameter(text: string, start: number): { content: string; end: number } {
  let content = "";
  for (let at = start; at < text.length; at += 1) {
    const char = text[at]!;
    if (char !== "{" && char !== "}") content += char;
    else if (text[at + 1] === char) {
      content += char;
      at += 1;
    } else if (char === "}") return { content, end: at + 1 };
    else throw new Error("a parameter cannot contain '{'");
  }
  throw new Error("a parameter is not closed by '}'");
}

function scanLiteral(text: string, start: number): { content: string; end: number } {
  let content = "";
  let at = start;
  for (; at < text.length && text[at] !== "/"; at += 1) {
    const char = text[at]!;
    if (char === "?") throw new Error("a literal cannot contain '?'");
    if (char === "{" || char === "}") {
      if (text[at + 1] !== char) {
        if (char === "{") break;
        throw new Error("a literal cannot contain a single '}'");
      }
      at += 1;
    }
    content += char;
  }
  return { content, end: at };
}

function parseParameter(content: string): Parameter {
  const catchAll = content.startsWith("*");
  let text = content.replace(/^\*{1,2}/, "");
  const optional = text.endsWith("?");
  if (optional) text = text.slice(0, -1);
  const name = /^[^:=]*/.exec(text)![0];
  if (name === "" || /[/{}?*]/.test(name)) throw new Error(`"${name}" is not a parameter name`);

  const constraints: Constraint[] = [];
  let rest = text.slice(name.length);
  while (rest.startsWith(":")) {
    // The arguments of a constraint end at the `)` before another constraint, a default or the end.
    const found = /^:(\w+\(.*?\)(?=$|[:=])|[^:=(]*)/s.exec(rest)!;
    if (found[1] !== "") constraints.push(parseConstraint(found[1]!));
    rest = rest.slice(found[0].length);
    if (rest.startsWith("(")) throw new Error(`the constraints of "${name}" are invalid`);
  }
  const defaultValue = rest.startsWith("=") ? rest.slice(1) : undefined;
  if (optional && catchAll) throw new Error("a catch-all parameter cannot be optional");
  if (optional && defaultValue !== undefined) throw new Error("an optional parameter cannot have a default");
  return { kind: "parameter", name, optional, catchAll, defaultValue, constraints };
}

function checkSegment(parts: Part[]): void {
  if (parts.length === 1) return;
  for (const [index, part] of parts.entries()) {
    if (part.kind !== "parameter") continue;
    const before = parts[index - 1];
    if (part.catchAll) throw new Error("a catch-all parameter must be a segment of its own");
    if (before?.kind === "parameter") throw new Error("two parameters need a literal between them");
    if (part.optional && (index !== parts.length - 1 || before?.text !== ".")) {
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
  const given = path.slice(1).split("/");
  // One trailing slash is ignored. An empty segment elsewhere matches nothing.
  if (given.at(-1) === "") given.pop();
  const params: Record<string, string> = {};
  let at = 0;
  for (const segment of segments) {
    const [part] = segment as [Part];
    const value = given[at];
    if (value === "") return undefined;
    if (part.kind === "parameter" && part.catchAll) {
      const rest = path.slice(1).split("/").slice(at).join("/");
      const caught = rest === "" ? part.defaultValue : rest;
      if (caught !== undefined) params[part.name] = caught;
      at = given.length;
      break;
    }
    if (value === undefined) {
      if (segment.length > 1 || part.kind === "literal") return undefined;
      if (part.defaultValue !== undefined) params[part.name] = part.defaultValue;
      else if (!part.optional) return undefined;
      continue;
    }
    if (!matchSegment(segment, value, params)) return undefined;
    at += 1;
  }
  if (at < given.length) return undefined;
  return constraintsHold(segments, params) ? params : undefined;
}

function matchSegment(segment: Part[], value: string, params: Record<string, string>): boolean {
  const [only] = segment as [Part];
  if (segment.length === 1) {
    if (only.kind === "literal") return only.text.toUpperCase() === value.toUpperCase();
    params[only.name] = value;
    return true;
  }
  const last = segment.at(-1)!;
  return (
    matchParts(segment, value, params) ||
    // `{name}.{extension?}` also matches without the dot.
    (last.kind === "parameter" && last.optional && matchParts(segment.slice(0, -2), value, params))
  );
}

/** ASP.NET Core matches from the right, so the last literal wins. Greedy groups find the same split. */
function matchParts(segment: Part[], value: string, params: Record<string, string>): boolean {
  const source = segment.map((part) => (part.kind === "literal" ? escapeRegExp(part.text) : "(.+)")).join("");
  const match = new RegExp(`^${source}$`, "is").exec(value);
  if (match === null) return false;
  const parameters = segment.filter((part) => part.kind === "parameter");
  for (const [index, part] of parameters.entries()) params[part.name] = match[index + 1]!;
  return true;
}

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
