import { asText, asTime, COMPARISONS, member, order, sameText, span, strictlySame } from "./kql-values.ts";

/**
 * Runs the subset of the Kusto Query Language that the simulated Resource Graph supports: `where`, `extend`, `project`, `order
 * by` and `limit` over one table. Other operators are rejected, so that a test fails instead of getting a wrong result.
 * https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language
 */
export interface Query {
  table: string;
  stages: Stage[];
}

export type Row = Record<string, unknown>;
type Expression = (row: Row) => unknown;
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

const TOKEN =
  /\s+|\/\/[^\n]*|(?<time>datetime\(\s*['"]?[\d:.+TZ -]+['"]?\s*\))|(?<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?<number>\d+(?:\.\d+)?[smhd]?)|(?<word>\$?[A-Za-z_][\w-]*~?)|(?<sign>!in~|!=|!~|==|=~|>=|<=|![a-z]+|[|(),.=<>[\]])/gy;

interface Token {
  kind: "time" | "text" | "number" | "word" | "sign";
  text: string;
  at: number;
}

function tokens(query: string): Token[] {
  const found: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < query.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(query);
    if (match === null) throw new QueryError(`Unexpected character '${query[at]}'`, at);
    const [kind, text] = Object.entries(match.groups ?? {}).find(([, value]) => value !== undefined) ?? [];
    if (text !== undefined) found.push({ kind: kind as Token["kind"], text, at });
  }
  return found;
}

/**
 * Parses a query.
 * @param now - Unix milliseconds, for `now()` and `ago()`.
 * @throws {QueryError}
 */
export function parse(query: string, now: number): Query {
  return new Parser(tokens(query), now).query();
}

class Parser {
  readonly #tokens: Token[];
  readonly #now: number;
  #next = 0;

  constructor(all: Token[], now: number) {
    this.#tokens = all;
    this.#now = now;
  }

  query(): Query {
    const table = this.#word().toLowerCase();
    const stages: Stage[] = [];
    while (this.#take("|")) stages.push(this.#stage());
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
        throw new QueryError(`The operator '${word}' is not supported`, this.#tokens[this.#next - 1]!.at);
    }
  }

  #column(): { name: string; value: Expression } {
    const start = this.#next;
    const name = this.#word();
    if (this.#take("=")) return { name, value: this.#value() };
    this.#next = start;
    const value = this.#value();
    const words = this.#tokens.slice(start, this.#next).filter(({ kind }) => kind === "word" || kind === "text");
    return { name: words.map(({ text }) => text.replace(/^['"]|['"]$/g, "")).join("_"), value };
  }

  #ordering(): { value: Expression; descending: boolean } {
    const value = this.#value();
    // The default direction is descending.
    const descending = !this.#take("asc");
    if (descending) this.#take("desc");
    return { value, descending };
  }

  #or(): Expression {
    const parts = [this.#and()];
    while (this.#take("or")) parts.push(this.#and());
    return (row) => parts.some((part) => part(row));
  }

  #and(): Expression {
    const parts = [this.#condition()];
    while (this.#take("and")) parts.push(this.#condition());
    return (row) => parts.every((part) => part(row));
  }

  #condition(): Expression {
    if (this.#take("not")) {
      this.#expect("(");
      const inner = this.#or();
      this.#expect(")");
      return (row) => !inner(row);
    }
    if (this.#take("(")) {
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
      const equal = operator.endsWith("~") ? sameText : strictlySame;
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
      const value = text.slice(1, -1).replace(/\\(.)/g, "$1");
      return () => value;
    }
    if (kind === "time") {
      const time = asTime(text.slice("datetime(".length, -1).replace(/['"]/g, "").trim()) ?? this.#fail(1);
      return () => time;
    }
    if (kind === "number") {
      const value = /[smhd]$/.test(text) ? span(text) : Number(text);
      return () => value;
    }
    if (kind !== "word") this.#fail(1);
    if (this.#take("(")) return this.#call(text);
    if (text === "true" || text === "false") return () => text === "true";
    return this.#path((row) => row[text]);
  }

  #path(start: Expression): Expression {
    let value = start;
    for (;;) {
      const before = value;
      if (this.#take(".")) {
        const name = this.#word();
        value = (row) => member(before(row), name);
      } else if (this.#take("[")) {
        const index = this.#value();
        this.#expect("]");
        value = (row) => member(before(row), String(index(row)));
      } else return value;
    }
  }

  #call(name: string): Expression {
    const values = this.#take(")") ? [] : this.#list(() => this.#value());
    if (this.#tokens[this.#next - 1]?.text !== ")" || values.length > 0) this.#expect(")");
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
        throw new QueryError(`The function '${name}' is not supported`, this.#tokens[this.#next - 1]!.at);
    }
  }

  #list<T>(one: () => T): T[] {
    const all = [one()];
    while (this.#take(",")) all.push(one());
    return all;
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

  #take(text: string): boolean {
    const found = this.#peek()?.text === text && this.#peek()?.kind !== "text";
    if (found) this.#next++;
    return found;
  }

  #expect(text: string): void {
    if (!this.#take(text)) this.#fail();
  }

  #fail(back = 0): never {
    const token = this.#tokens[this.#next - back];
    throw new QueryError(`Unexpected '${token?.text ?? "end of the query"}'`, token?.at ?? 0);
  }
}

/** Sorts rows by the clauses of an `order by`. */
export function compareRows(by: readonly { value: Expression; descending: boolean }[], a: Row, b: Row): number {
  for (const { value, descending } of by) {
    const difference = order(value(a), value(b));
    if (difference !== 0) return descending ? -difference : difference;
  }
  return 0;
}
