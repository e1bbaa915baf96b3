// The only query of the simulated Log Analytics: a summary of vault reads and sign-ins.

import { type LogEvent, TABLES, type VaultEvent, type Workspace, type Workspaces } from "./workspaces.ts";

/** A column of the summary query's result. */
export interface Column {
  name: string;
  type: "string" | "datetime" | "long";
}

/** Columns that the query can project. */
const COLUMNS: Record<string, Column["type"]> = {
  Kind: "string",
  Day: "datetime",
  VaultId: "string",
  AssetUrl: "string",
  OperationName: "string",
  ObjectId: "string",
  AppId: "string",
  UserName: "string",
  IdentityOf: "string",
  KeyId: "string",
  Name: "string",
  FirstAt: "datetime",
  LastAt: "datetime",
  Rows: "long",
};

const DAY_MS = 86_400_000;

/** A row of the result by column. */
type Line = Record<string, string | number>;

/** Returns whether a query is the supported one: a `union isfuzzy=true`, which tolerates missing tables, of all tables. */
export const isSummaryQuery = (query: string): boolean =>
  TABLES.every((name) => new RegExp(`\\b${name}\\b`).test(query)) && /\bunion\s+isfuzzy\s*=\s*true\b/.test(query);

/** Returns the result of the summary of vault reads and sign-ins, or the error. The query names the result's columns. */
export function runSummaryQuery(
  query: string,
  { from, to }: { from: number; to: number },
  workspace: Workspace,
  workspaces: Workspaces,
): { columns: Column[]; rows: unknown[][] } | string {
  // The columns of the last `| project`.
  const projected = [...query.matchAll(/\|\s*project\s+([\w\s,]+?)\s*$/g)]
    .at(-1)?.[1]
    ?.split(",")
    .map((name) => name.trim());
  if (projected === undefined) return "The query does not end with `project` and its columns";
  const unknown = projected.find((name) => COLUMNS[name] === undefined);
  if (unknown !== undefined) return `'project' operator: Failed to resolve scalar expression named '${unknown}'`;
  // `Uses` lists the operations that count as a use of a secret, `Own` the service's identities, whose reads do not count.
  const uses = listConstant(query, "Uses");
  const ownObjectIds = listConstant(query, "Own").map((id) => id.toLowerCase());
  const lines = new Map<string, Line>();
  for (const event of workspaces.visibleEvents(workspace, from, to))
    countEvent(lines, event, { uses, own: ownObjectIds });
  for (const line of generatedLines(workspace, from, Math.min(to, workspaces.visibleUntil(workspace)))) {
    lines.set(JSON.stringify(line), line);
  }
  const columns = projected.map((name): Column => ({ name, type: COLUMNS[name]! }));
  const cell = (value: string | number | undefined, type: Column["type"]) =>
    type === "datetime" ? (value === undefined ? null : new Date(Number(value)).toISOString()) : (value ?? "");
  return { columns, rows: [...lines.values()].map((line) => columns.map(({ name, type }) => cell(line[name], type))) };
}

/** Parses `let Name = dynamic(["a", "b"]);`. */
function listConstant(query: string, name: string): string[] {
  const list = new RegExp(`let\\s+${name}\\s*=\\s*dynamic\\((\\[[^\\]]*\\])\\)`).exec(query)?.[1] ?? "[]";
  return JSON.parse(list) as string[];
}

/**
 * Adds an event to the rows that count it, one row per day. `signIn`: sign-ins with a credential. `vault`: all requests to a
 * vault. `use`: successful reads of an item by an identity other than the service.
 */
function countEvent(
  lines: Map<string, Line>,
  event: LogEvent,
  { uses, own: ownObjectIds }: { uses: string[]; own: string[] },
): void {
  const count = (key: Line) => {
    const id = JSON.stringify(key);
    const line = lines.get(id) ?? { ...key, FirstAt: event.at, LastAt: event.at, Rows: 0 };
    line.FirstAt = Math.min(Number(line.FirstAt), event.at);
    line.LastAt = Math.max(Number(line.LastAt), event.at);
    line.Rows = Number(line.Rows) + 1;
    lines.set(id, line);
  };
  const Day = Math.floor(event.at / DAY_MS) * DAY_MS;
  if (event.table === "AADServicePrincipalSignInLogs") {
    const { appId, keyId, name } = event;
    if (keyId !== "") count({ Kind: "signIn", Day, AppId: appId, KeyId: keyId, Name: name });
    return;
  }
  count({ Kind: "vault", Day, VaultId: event.vaultId.toLowerCase() });
  const isUse = uses.includes(event.operation) && event.status >= 200 && event.status < 300;
  if (isUse && !ownObjectIds.includes(event.objectId.toLowerCase())) count({ Kind: "use", Day, ...readColumns(event) });
}

const readColumns = ({
  vaultId,
  id,
  requestUri,
  operation,
  objectId,
  appId,
  userName,
  identityOf,
}: VaultEvent): Line => ({
  VaultId: vaultId.toLowerCase(),
  AssetUrl: id === "" ? requestUri : id,
  OperationName: operation,
  ObjectId: objectId,
  AppId: appId,
  UserName: userName ?? "",
  IdentityOf: identityOf ?? "",
});

/** Computes the result for a workspace with millions of rows without storing the rows. */
function* generatedLines({ volume, tables }: Workspace, from: number, to: number): Generator<Line> {
  if (volume === undefined || !tables.has("AZKVAuditLogs")) return;
  const { rowsPerDay, vaultId, vaultUri, secrets, readers } = volume;
  for (let day = Math.floor(from / DAY_MS) * DAY_MS; day < to; day += DAY_MS) {
    const [first, last] = [Math.max(day, from), Math.min(day + DAY_MS, to) - 1];
    const rows = Math.floor((rowsPerDay * (last - first)) / DAY_MS);
    const dayAndVault = { Day: day, VaultId: vaultId.toLowerCase() };
    yield { Kind: "vault", ...dayAndVault, FirstAt: first, LastAt: last, Rows: rows };
    for (let secret = 0; secret < secrets; secret++)
      for (let reader = 0; reader < readers; reader++) {
        const id = `00000000-0000-4000-8000-${String(reader).padStart(12, "0")}`;
        yield {
          Kind: "use",
          ...dayAndVault,
          AssetUrl: `${vaultUri}/secrets/generated-${secret}/${String(secret).padStart(32, "0")}`,
          OperationName: "SecretGet",
          ObjectId: id,
          AppId: id,
          FirstAt: first,
          LastAt: last,
          Rows: Math.floor(rows / (secrets * readers)),
        };
      }
  }
}
