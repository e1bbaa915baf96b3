/**
 * Formats of vault secrets that name a database user with its password:
 * - `uri`: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS, also of JDBC
 * - `keywords` (libpq): https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-KEYWORD-VALUE
 * - `parts` (ADO.NET): https://www.npgsql.org/doc/connection-string-parameters.html and
 *   https://mysqlconnector.net/connection-options/
 * - `json`: an object with a user and a password, as in https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html
 */
export type LoginFormat = "uri" | "keywords" | "parts" | "json";

/** What a vault secret says about a login. It contains the password: do not store or log it. */
export interface LoginValue {
  format: LoginFormat;
  user: string;
  password: string;
  /** Host in lower case. Undefined if the text names none. */
  host: string | undefined;
}

/** A login, or why a text can't be rotated: the end of a sentence "The secret …". */
export type ReadLogin = { login: LoginValue; problem?: never } | { login?: never; problem: string };

/** A part of a text, from `start` to before `end`, with its text after the format's escapes were resolved. */
interface Span {
  start: number;
  end: number;
  value: string;
}

interface Parsed {
  format: LoginFormat;
  user: Span;
  password: Span;
  host: string | undefined;
}

/** Names that need no escaping in any of the formats. Passwords that the service generates consist of the same characters. */
const PLAIN_TEXT = /^[A-Za-z0-9_.-]+$/;
/** Shorter passwords can be part of other words, so a second occurrence proves nothing. */
const MIN_SEARCHED_CHARACTERS = 6;

/** Reads the user and the password of a vault secret. */
export function readLogin(text: string): ReadLogin {
  const parsed = parse(text);
  if (typeof parsed === "string") return { problem: parsed };
  const { format, user, password, host } = parsed;
  const rest = text.slice(0, password.start) + text.slice(password.end);
  const raw = text.slice(password.start, password.end);
  if (raw.length >= MIN_SEARCHED_CHARACTERS && (rest.includes(raw) || rest.includes(password.value)))
    return { problem: "contains the password a second time, and only one occurrence would be replaced" };
  return { login: { format, user: user.value, password: password.value, host: host?.toLowerCase() } };
}

/**
 * Returns the text with another user and password. Everything else stays byte for byte.
 *
 * @throws {TypeError} if the text has none of the formats, or if the user or password would need escaping.
 */
export function rewriteLogin(text: string, login: Pick<LoginValue, "user" | "password">): string {
  const { problem } = readLogin(text);
  const parsed = parse(text);
  if (problem !== undefined || typeof parsed === "string") throw new TypeError(`The secret ${problem}.`);
  if (!PLAIN_TEXT.test(login.user) || !PLAIN_TEXT.test(login.password))
    throw new TypeError("The user or the password contains a character that would need escaping.");
  const replacements: [Span, string][] = [
    [parsed.user, login.user],
    [parsed.password, login.password],
  ];
  // From the end of the text, so that a replacement does not move the span before it.
  replacements.sort(([a], [b]) => b.start - a.start);
  let rewritten = text;
  for (const [{ start, end }, value] of replacements)
    rewritten = rewritten.slice(0, start) + value + rewritten.slice(end);
  const result = readLogin(rewritten).login;
  if (result?.user !== login.user || result.password !== login.password)
    throw new TypeError("The format of the secret can't contain the login.");
  return rewritten;
}

const PLAIN_PASSWORD =
  "names no database user: use a URI, a connection string, or JSON with username and password, because two secrets can't change at the same time";

/** Returns the parts of a text, or the problem with it. */
function parse(text: string): Parsed | string {
  if (/^\s*\{/.test(text)) return parseJson(text);
  if (/^\s*(?:jdbc:)?[a-z][a-z0-9+.-]*:\/\//i.test(text)) return parseUri(text);
  if (text.includes(";")) return fromNames("parts", readParts(text));
  if (/^\s*[a-z_]+\s*=/i.test(text)) return fromNames("keywords", readKeywords(text));
  return PLAIN_PASSWORD;
}

/** Names of the members and parameters of all formats, in lower case. */
const USER_NAMES = ["user", "username", "user name", "user id", "userid", "uid"];
const PASSWORD_NAMES = ["password", "pwd", "pass"];
const HOST_NAMES = ["host", "hostname", "server", "data source", "datasource", "address", "addr", "network address"];

/** Returns the login that named values contain. A value with two of the names is refused: its client may use either. */
function fromNames(format: LoginFormat, values: readonly [string, Span][] | undefined): Parsed | string {
  if (values === undefined) return "has quotes or escapes that do not end";
  const named = (names: readonly string[]) => values.filter(([name]) => names.includes(name.trim().toLowerCase()));
  const [users, passwords, hosts] = [named(USER_NAMES), named(PASSWORD_NAMES), named(HOST_NAMES)];
  if (users.length > 1 || passwords.length > 1 || hosts.length > 1)
    return "names the user, the password or the host twice";
  const [user, password] = [users[0]?.[1], passwords[0]?.[1]];
  if (user === undefined || password === undefined || user.value === "" || password.value === "") return PLAIN_PASSWORD;
  return { format, user, password, host: hosts[0]?.[1].value.trim().replace(/:\d*$/, "") };
}

/** Reads `scheme://user:password@host:port/database?name=value`. JDBC and some drivers have the login in the query. */
function parseUri(text: string): Parsed | string {
  const match =
    /^(\s*(?:jdbc:)?(?:postgres(?:ql)?|mysql|mariadb)(?:\+[a-z0-9]+)?:\/\/)(?:([^:@/?#\s]*)(?::([^@/?#\s]*))?@)?([^/?#\s]*)[^?#\s]*(?:\?([^#\s]*))?/i.exec(
      text,
    );
  if (match === null) return "is a URI of no supported database";
  const [, scheme = "", userText, passwordText, hosts = "", query = ""] = match;
  if (hosts.includes(",")) return "names several hosts";
  const values: [string, Span][] = [];
  const add = (name: string, start: number, raw: string): boolean => {
    const value = decode(raw);
    if (value !== undefined) values.push([name, { start, end: start + raw.length, value }]);
    return value !== undefined;
  };
  let isValid = true;
  if (userText !== undefined) isValid &&= add("user", scheme.length, userText);
  if (passwordText !== undefined)
    isValid &&= add("password", scheme.length + (userText?.length ?? 0) + 1, passwordText);
  if (hosts !== "") values.push(["host", { start: 0, end: 0, value: hosts }]);
  let start = match[0].length - query.length;
  for (const parameter of query.split("&")) {
    const equals = parameter.indexOf("=");
    const name = parameter.slice(0, Math.max(0, equals)).toLowerCase();
    if ([...USER_NAMES, ...PASSWORD_NAMES, "host"].includes(name))
      isValid &&= add(name, start + equals + 1, parameter.slice(equals + 1));
    start += parameter.length + 1;
  }
  return isValid ? fromNames("uri", values) : "contains an invalid percent-encoding";
}

/** Reads `name=value` parts that semicolons separate. A value can be in quotes, in which a doubled quote stands for one. */
function readParts(text: string): [string, Span][] | undefined {
  const values: [string, Span][] = [];
  // No two neighboring parts of the pattern match the same character, so its time is linear in the length of the text.
  const part = /([^=;]*)=\s*(?!\s)(?:"((?:[^"]|"")*)"\s*|'((?:[^']|'')*)'\s*|((?!["'])[^;]*))(?:;|$)/y;
  while (part.lastIndex < text.length) {
    const start = part.lastIndex;
    if (/^[\s;]*$/.test(text.slice(start))) break;
    const match = part.exec(text);
    if (match === null) return undefined;
    const [whole, name = "", double, single, bare = ""] = match;
    const quote = double === undefined ? (single === undefined ? "" : "'") : '"';
    const raw = double ?? single ?? bare.trimEnd();
    const valueStart = start + whole.indexOf(quote + raw, whole.indexOf("=") + 1) + quote.length;
    const value = quote === "" ? raw : raw.replaceAll(quote + quote, quote);
    values.push([name, { start: valueStart, end: valueStart + raw.length, value }]);
  }
  return values;
}

/** Reads libpq's `name = value` pairs. A value with spaces is in single quotes. A backslash escapes quotes and backslashes. */
function readKeywords(text: string): [string, Span][] | undefined {
  const values: [string, Span][] = [];
  const pair = /\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)\s*/sy;
  while (pair.lastIndex < text.length) {
    const start = pair.lastIndex;
    const match = pair.exec(text);
    if (match === null) return undefined;
    const [whole, name = "", quoted, bare = ""] = match;
    const quote = quoted === undefined ? "" : "'";
    const raw = quoted ?? bare;
    const valueStart = start + whole.indexOf(quote + raw, whole.indexOf("=") + 1) + quote.length;
    values.push([name, { start: valueStart, end: valueStart + raw.length, value: raw.replaceAll(/\\(.)/gs, "$1") }]);
  }
  return values;
}

/** Reads the texts of the outer object. JSON.parse checks the syntax, so the pattern only has to find the tokens. */
function parseJson(text: string): Parsed | string {
  try {
    JSON.parse(text);
  } catch {
    return "is not valid JSON";
  }
  const values: [string, Span][] = [];
  const tokens = text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g);
  let depth = 0;
  let name: string | undefined;
  let last: string | undefined;
  for (const { 0: token, index } of tokens) {
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && token === ":") name = last;
    else if (depth === 1 && token.startsWith('"')) {
      const value = JSON.parse(token) as string;
      if (name !== undefined) values.push([name, { start: index + 1, end: index + token.length - 1, value }]);
      name = undefined;
      last = value;
    } else name = undefined;
  }
  return fromNames("json", values);
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined; // An invalid escape: the text is unknown.
  }
}
