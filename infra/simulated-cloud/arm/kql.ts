import {
  asText,
  asTime,
  COMPARISONS,
  compareValues,
  equalIgnoringCase,
  equalText,
  member,
  parseTimespan,
} from "./kql-values.ts";

/**
 * A parsed query in the subset of the Kusto Query Language (KQL) that the simulated Resource Graph supports: `where`, `extend`,
 * `project`, `order by` and `limit` over one table. Other operators are rejected, so that a test fails instead of getting a
 * wrong result. https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language
 */
export interface Query {
  table: string;
  stages: Stage[];
}

/** Values of a row by column. */
export type Row = Record<string, unknown>;
/** Computes a value from a row. */
type Expression = (row: Row) => unknown;
/** One operator of a query, after a `|`. */
export type Stage =
  | { kind: "where"; test: Expression }
  | { kind: "extend" | "project"; columns: { name: string; value: Expression }[] }
  | { kind: "order"; by: { value: Expression; descending: boolean }[] }
  | { kind: "limit"; count: number };

/** Position and cause of a syntax error. */
export class QueryError extends Error {
  readonly position: number;

  constructor(message: string, position: number) {
    super(message);
    this.position = position;
  }
}

/**
 * White space, a comment, or a token: a time, a text in quotes, a number or timespan, a word, or an operator. `in~` counts as a
 * word, because words can end with `~`, but `!in~` as an operator.
 */
const TOKEN =
  /\s+|\/\/[^\n]*|(?<time>datetime\(\s*['"]?[\d:.+TZ -]+['"]?\s*\))|(?<text>'(?:[^'\\\r\n]|\\.)*'|"(?:[^"\\\r\n]|\\.)*")|(?<number>\d+(?:\.\d+)?[smhd]?)|(?<word>\$?[A-Za-z_][\w-]*~?)|(?<sign>!in~|!=|!~|==|=~|>=|<=|![a-z]+|[|(),.=<>[\]])/gy;

interface Token {
  kind: "time" | "text" | "number" | "word" | "sign";
  text: string;
  /** Position in the query. */
  position: number;
}

const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t" };
/** Returns the text of a literal: https://learn.microsoft.com/kusto/query/scalar-data-types/string */
const unescapeText = (text: string): string =>
  text.replace(/\\(?:u([0-9A-Fa-f]{4})|(.))/g, (_, code: string | undefined, character: string) =>
    code === undefined ? (ESCAPES[character] ?? character) : String.fromCharCode(Number.parseInt(code, 16)),
  );

/** Splits a query into tokens. */
function tokenize(query: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < query.length) {
    const position = TOKEN.lastIndex;
    const match = TOKEN.exec(query);
    if (match === null) throw new QueryError(`Unexpected character '${query[position]}'`, position);
    const [kind, text] = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined) ?? [];
    if (text !== undefined) tokens.push({ kind: kind as Token["kind"], text, position });
  }
  return tokens;
}

/**
 * Parses a query.
 * @param now - Unix milliseconds, for `now()` and `ago()`.
 * @throws {QueryError}
 */
export function parse(query: string, now: number): Query {
  return new Parser(tokenize(query), now).query();
}

/** Recursive descent parser. `#next` is the index of the next token. */
class Parser {
  readonly #tokens: Token[];
  readonly #now: number;
  #next = 0;

  constructor(tokens: Token[], now: number) {
    this.#tokens = tokens;
    this.#now = now;
  }

  query(): Query {
    const table = this.#word().toLowerCase();
    const stages: Stage[] = [];
    while (this.#takeIf("|")) stages.push(this.#stage());
    if (this.#peek() !== undefined) this.#fail();
    return { table, stages };
  }

  #stage(): Stage {
    const word = this.#word();
    switch (word) {
      case "where":
        return { kind: "where", test: this.#or() };
      case "extend":
      case "project":
        return { kind: word, columns: this.#list(() => this.#column()) };
      case "order":
      case "sort":
        this.#expect("by");
        return { kind: "order", by: this.#list(() => this.#ordering()) };
      case "limit":
      case "take":
        return { kind: "limit", count: Number(this.#token().text) };
      default:
        throw new QueryError(`The operator '${word}' is not supported`, this.#tokens[this.#next - 1]!.position);
    }
  }

  /** Parses a column: `name = value`, or a value, whose name is then built from its words. */
  #column(): { name: string; value: Expression } {
    // Without "=", the parser goes back to the start and parses the same tokens as a value.
    const start = this.#next;
    const name = this.#word();
    if (this.#takeIf("=")) return { name, value: this.#value() };
    this.#next = start;
    const value = this.#value();
    const words = this.#tokens.slice(start, this.#next).filter(({ kind }) => kind === "word" || kind === "text");
    return { name: words.map(({ text }) => text.replace(/^['"]|['"]$/g, "")).join("_"), value };
  }

  #ordering(): { value: Expression; descending: boolean } {
    const value = this.#value();
    // The default direction is descending.
    const descending = !this.#takeIf("asc");
    if (descending) this.#takeIf("desc");
    return { value, descending };
  }

  #or(): Expression {
    const parts = [this.#and()];
    while (this.#takeIf("or")) parts.push(this.#and());
    return (row) => parts.some((part) => part(row));
  }

  #and(): Expression {
    const parts = [this.#condition()];
    while (this.#takeIf("and")) parts.push(this.#condition());
    return (row) => parts.every((part) => part(row));
  }

  #condition(): Expression {
    if (this.#takeIf("not")) {
      this.#expect("(");
      const inner = this.#or();
      this.#expect(")");
      return (row) => !inner(row);
    }
    if (this.#takeIf("(")) {
      const inner = this.#or();
      this.#expect(")");
      return inner;
    }
    const left = this.#value();
    const operator = this.#peek()?.text ?? "";
    if (["in", "in~", "!in", "!in~"].includes(operator)) {
      this.#next++;
      this.#expect("(");
      const values = this.#list(() => this.#value());
      this.#expect(")");
      const equal = operator.endsWith("~") ? equalIgnoringCase : equalText;
      const negated = operator.startsWith("!");
      return (row) => values.some((one) => equal(left(row), one(row))) !== negated;
    }
    const compare = COMPARISONS[operator];
    // A function such as `isnotempty()` is a complete condition.
    if (compare === undefined) return (row) => left(row) === true;
    this.#next++;
    const right = this.#value();
    return (row) => compare(left(row), right(row));
  }

  #value(): Expression {
    const { kind, text } = this.#token();
    if (kind === "text") {
      const value = unescapeText(text.slice(1, -1));
      return () => value;
    }
    if (kind === "time") {
      const time = asTime(text.slice("datetime(".length, -1).replace(/['"]/g, "").trim()) ?? this.#fail(1);
      return () => time;
    }
    if (kind === "number") {
      const value = /[smhd]$/.test(text) ? parseTimespan(text) : Number(text);
      return () => value;
    }
    if (kind !== "word") this.#fail(1);
    if (this.#takeIf("(")) return this.#call(text);
    if (text === "true" || text === "false") return () => text === "true";
    return this.#path((row) => row[text]);
  }

  /** Parses members after a value: `.name` and `[index]`. */
  #path(start: Expression): Expression {
    let value = start;
    for (;;) {
      const parent = value;
      if (this.#takeIf(".")) {
        const name = this.#word();
        value = (row) => member(parent(row), name);
      } else if (this.#takeIf("[")) {
        const index = this.#value();
        this.#expect("]");
        value = (row) => member(parent(row), String(index(row)));
      } else return value;
    }
  }

  #call(name: string): Expression {
    const values: Expression[] = [];
    if (!this.#takeIf(")")) {
      values.push(...this.#list(() => this.#value()));
      this.#expect(")");
    }
    const [first = () => undefined] = values;
    switch (name) {
      case "tostring":
        return (row) => asText(first(row));
      case "tolower":
        return (row) => asText(first(row)).toLowerCase();
      case "todatetime":
        return (row) => asTime(first(row));
      case "parse_json":
      case "todynamic":
        return this.#path(first);
      case "now":
        return () => new Date(this.#now);
      case "ago":
        return (row) => new Date(this.#now - Number(first(row)));
      case "isnotempty":
        return (row) => asText(first(row)) !== "";
      case "isempty":
        return (row) => asText(first(row)) === "";
      case "isnotnull":
        return (row) => (first(row) ?? null) !== null;
      case "isnull":
        return (row) => (first(row) ?? null) === null;
      case "coalesce":
        return (row) => values.map((one) => one(row)).find((one) => (one ?? null) !== null);
      default:
        throw new QueryError(`The function '${name}' is not supported`, this.#tokens[this.#next - 1]!.position);
    }
  }

  #list<T>(one: () => T): T[] {
    const items = [one()];
    while (this.#takeIf(",")) items.push(one());
    return items;
  }

  #peek(): Token | undefined {
    return this.#tokens[this.#next];
  }

  #token(): Token {
    return this.#tokens[this.#next++] ?? this.#fail(1);
  }

  #word(): string {
    const { kind, text } = this.#token();
    return kind === "word" ? text : this.#fail(1);
  }

  /** Consumes the next token if it has this text. Returns whether it did. A text in quotes never matches: it has its quotes. */
  #takeIf(text: string): boolean {
    const matches = this.#peek()?.text === text;
    if (matches) this.#next++;
    return matches;
  }

  #expect(text: string): void {
    if (!this.#takeIf(text)) this.#fail();
  }

  /** Throws a syntax error at the next token, or at an earlier one. */
  #fail(back = 0): never {
    const token = this.#tokens[this.#next - back];
    throw new QueryError(`Unexpected '${token?.text ?? "end of the query"}'`, token?.position ?? 0);
  }
}

/** Compares two rows by the clauses of an `order by`. */
export function compareRows(by: readonly { value: Expression; descending: boolean }[], a: Row, b: Row): number {
  for (const { value, descending } of by) {
    const difference = compareValues(value(a), value(b));
    if (difference !== 0) return descending ? -difference : difference;
  }
  return 0;
}
