// Evaluates the expressions of Azure Policy: texts in brackets, such as `[concat('tags[', parameters('tagName'), ']')]`.
// https://learn.microsoft.com/azure/governance/policy/concepts/definition-structure-policy-rule#policy-functions

import { isObject, memberOf, SHARED_FUNCTIONS, UNKNOWN, type Value } from "../values.ts";

/** Functions with the arguments of this evaluation, by name in lower case: `parameters`, `field`, `current` … */
export type Functions = Readonly<Record<string, (args: Value[]) => Value>>;

/**
 * Returns a value with its expressions evaluated, inside lists and objects too. UNKNOWN for an expression that uses a function
 * without an implementation.
 */
export function resolve(value: Value, functions: Functions): Value {
  if (Array.isArray(value)) return value.map((one) => resolve(one, functions));
  if (isObject(value)) {
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolve(one, functions)]));
  }
  if (typeof value !== "string" || !value.startsWith("[") || !value.endsWith("]")) return value;
  // Two brackets are an escaped text.
  if (value.startsWith("[[")) return value.slice(1);
  const parser = new ExpressionParser(value.slice(1, -1), functions);
  return parser.parse();
}

const TOKEN = /\s*(?:'((?:[^']|'')*)'|(-?\d+(?:\.\d+)?)|([A-Za-z_][\w.-]*)|([()[\],.]))/y;

type Token = { text: string } | { number: number } | { name: string } | { sign: string };

/** Parses and evaluates one expression from left to right. */
class ExpressionParser {
  readonly #tokens: Token[] = [];
  readonly #functions: Functions;
  /** False if the text has characters that are no part of an expression. */
  readonly #complete: boolean;
  #position = 0;

  constructor(text: string, functions: Functions) {
    this.#functions = functions;
    TOKEN.lastIndex = 0;
    let end = 0;
    for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
      const [, quoted, number, name, sign] = match;
      if (quoted !== undefined) this.#tokens.push({ text: quoted.replaceAll("''", "'") });
      else if (number !== undefined) this.#tokens.push({ number: Number(number) });
      else if (name !== undefined) this.#tokens.push({ name });
      else this.#tokens.push({ sign: sign! });
      end = TOKEN.lastIndex;
    }
    this.#complete = text.slice(end).trim() === "";
  }

  parse(): Value {
    if (!this.#complete) return UNKNOWN;
    const value = this.#expression();
    return this.#position === this.#tokens.length ? value : UNKNOWN;
  }

  #expression(): Value {
    const token = this.#tokens[this.#position++];
    if (token === undefined) return UNKNOWN;
    let value: Value = UNKNOWN;
    if ("text" in token) value = token.text;
    else if ("number" in token) value = token.number;
    else if ("name" in token) value = this.#named(token.name);
    return this.#suffixes(value);
  }

  /** A call, or one of the literals `true`, `false` and `null`. */
  #named(name: string): Value {
    if (!this.#takes("(")) return { true: true, false: false, null: null }[name.toLowerCase()] ?? UNKNOWN;
    const args: Value[] = [];
    while (this.#position < this.#tokens.length && !this.#takes(")")) {
      args.push(this.#expression());
      this.#takes(",");
    }
    // `if(condition, whenTrue, whenFalse)`.
    if (name.toLowerCase() === "if") return args[0] === UNKNOWN ? UNKNOWN : args[0] ? args[1] : args[2];
    const run = this.#functions[name.toLowerCase()] ?? SHARED_FUNCTIONS[name.toLowerCase()];
    return run ? run(args) : UNKNOWN;
  }

  /** Members after a value: `.location` and `[0]`. */
  #suffixes(value: Value): Value {
    let result = value;
    for (;;) {
      if (this.#takes(".")) {
        const token = this.#tokens[this.#position++];
        // The tokenizer reads `a.b` as one name.
        const path = token !== undefined && "name" in token ? token.name.split(".") : ["?"];
        for (const name of path) result = memberOf(result, name);
      } else if (this.#takes("[")) {
        const index = this.#expression();
        this.#takes("]");
        result = Array.isArray(result) ? result[Number(index)] : memberOf(result, String(index));
      } else return result;
    }
  }

  #takes(sign: string): boolean {
    const token = this.#tokens[this.#position];
    if (token === undefined || !("sign" in token) || token.sign !== sign) return false;
    this.#position++;
    return true;
  }
}
