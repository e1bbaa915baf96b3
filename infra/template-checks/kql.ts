// Checks that a KQL query uses tables, columns and functions that exist, and returns the messages that it searches for.

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Columns of every Application Insights table: https://learn.microsoft.com/azure/azure-monitor/app/data-model-complete */
const COMMON_COLUMNS = words(`
  timestamp itemType itemId itemCount customDimensions customMeasurements sdkVersion
  appId appName iKey application_Version cloud_RoleName cloud_RoleInstance
  operation_Name operation_Id operation_ParentId operation_SyntheticSource
  session_Id user_Id user_AuthenticatedId user_AccountId
  client_Type client_Model client_OS client_IP client_City client_CountryOrRegion client_Browser`);

/** The tables that the queries may read, with their own columns. Same source. */
const TABLES: Record<string, readonly string[]> = {
  traces: words("message severityLevel"),
  requests: words("id source name url success resultCode duration performanceBucket"),
  exceptions: words(`
    problemId type assembly method message severityLevel details handledAt
    outerType outerMessage outerMethod innermostType innermostMessage innermostMethod`),
};

/** https://learn.microsoft.com/kusto/query/scalar-functions and aggregation-functions, as far as the queries need them */
const FUNCTIONS = new Set(
  words(`
    ago bin now parse_json split strlen substring tolower tostring toint
    avg count countif dcount max min percentile sum sumif`),
);

const KEYWORDS = new Set(
  words(`
    union where extend summarize project order sort take limit top by asc desc
    and or not in has contains startswith endswith between true false`),
);

/** A text, a timespan or number, a member such as `.status`, or a word. */
const TOKEN = /"(?:[^"\\]|\\.)*"|\d+(?:\.\d+)?(?:[smhd]|ms)?\b|\.\s*[A-Za-z_]\w*|[A-Za-z_]\w*/g;

/** Returns the problems of a query, each as a message. */
export function queryProblems(query: string): string[] {
  const source = query.replace(/^\s*\/\/.*$/gm, "");
  const tokens = [...source.matchAll(TOKEN)].map(({ 0: text, index }) => {
    const after = source.slice(index + text.length).trimStart();
    return { text, isCall: after.startsWith("("), isDefinition: /^=(?![=~])/.test(after) };
  });
  const names = tokens.filter(({ text }) => /^[A-Za-z_]/.test(text));
  // A query starts with a table, or with a union of tables. A table in a union can have operators of its own, in parentheses.
  const tables = source.trim().startsWith("union")
    ? [...source.matchAll(/(?:\bunion|,)\s*\(?\s*([A-Za-z_]\w*)(?=\s*(?:\||,|\)|$|\n))/g)].map(([, table]) => table!)
    : [names[0]?.text ?? ""];
  const isTable = (name: string) => tables.includes(name);
  const columns = new Set([
    ...COMMON_COLUMNS,
    ...tables.flatMap((table) => TABLES[table] ?? []),
    ...names.filter(({ isDefinition }) => isDefinition).map(({ text }) => text),
  ]);
  const unknownTables = tables.filter((table) => !TABLES[table]).map((table) => `there is no table ${table}`);
  const unknownFunctions = names
    .filter(({ text, isCall }) => isCall && !FUNCTIONS.has(text) && !KEYWORDS.has(text) && !isTable(text))
    .map(({ text }) => `there is no function ${text}`);
  const unknownColumns = names
    .filter(({ text, isCall }) => !isCall && !KEYWORDS.has(text) && !isTable(text) && !columns.has(text))
    .map(({ text }) => `${tables.join(" and ")} has no column ${text}`);
  return [...unknownTables, ...unknownFunctions, ...unknownColumns];
}

/** Returns the texts with which a query compares log messages, for example `message startswith "A scan is over "`. */
export const messageTextsIn = (query: string): string[] =>
  [...query.matchAll(/\bmessage\s+(?:startswith|contains|has|==)\s+"([^"]+)"/g)].map(([, text]) => text!);

/** Returns the values with which a query compares the outcome of a scan: `tostring(scan.status) in ("failed", …)`. */
export const statusesIn = (query: string): string[] =>
  [...query.matchAll(/\.status\)\s+in\s+\(([^)]*)\)/g)].flatMap(([, list]) =>
    [...list!.matchAll(/"([^"]*)"/g)].map(([, status]) => status!),
  );

/** Returns the fields that a query reads from the JSON of a message: `status` of `scan = parse_json(…) … scan.status`. */
export const membersIn = (query: string): string[] =>
  [...query.matchAll(/\b(\w+)\s*=\s*parse_json\(/g)].flatMap(([, name]) =>
    [...query.matchAll(new RegExp(`\\b${name}\\.(\\w+)`, "g"))].map(([, member]) => member!),
  );

/** Returns the names of the columns that a query returns. Undefined if it returns the columns of its table. */
export function columnsOf(query: string): string[] | undefined {
  const stages = query
    .replace(/^\s*\/\/.*$/gm, "")
    // A bar inside of a text separates nothing.
    .replace(/"(?:[^"\\]|\\.)*"/g, (text) => text.replaceAll("|", " "))
    .split("|")
    .map((stage) => stage.trim());
  let columns: string[] | undefined;
  for (const stage of stages) {
    const [, operator, list] = /^(summarize|project|extend)\s+(.*)$/s.exec(stage) ?? [];
    if (operator === undefined) continue;
    const names = listedNames(list!);
    if (operator !== "extend") columns = names;
    else columns?.push(...names);
  }
  return columns;
}

/** Returns the names in a list such as `runs = count(), bin(timestamp, 1d) by name`: what is assigned, or the column itself. */
function listedNames(list: string): string[] {
  const parts: string[] = [""];
  let depth = 0;
  for (const word of list.match(/\bby\b|[(),]|[^(),]+?(?=\bby\b|[(),]|$)/g) ?? []) {
    if (word === "(") depth++;
    if (word === ")") depth--;
    if (depth === 0 && (word === "," || word === "by")) parts.push("");
    else parts[parts.length - 1] += word;
  }
  return parts.flatMap((part) => {
    const written = part.trim();
    return /^(\w+)\s*=(?!=)/.exec(written)?.[1] ?? /^bin\((\w+)/.exec(written)?.[1] ?? /^\w+$/.exec(written)?.[0] ?? [];
  });
}
