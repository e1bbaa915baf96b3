import type { CloudClock } from "../clock.ts";
import { guidFrom } from "../resources/identifiers.ts";

/** The tables of a workspace that this cloud fills. */
export const TABLES = ["AZKVAuditLogs", "AzureDiagnostics", "AADServicePrincipalSignInLogs"] as const;
export type TableName = (typeof TABLES)[number];

/** A request to a key vault, as its category AuditEvent has it. */
export interface VaultEvent {
  table: "AZKVAuditLogs" | "AzureDiagnostics";
  /** Unix milliseconds. */
  at: number;
  /** Such as `SecretGet`. */
  operation: string;
  /** The vault's resource id. */
  vaultId: string;
  /** What was asked for, with its version: `https://kv.vault.localhost/secrets/name/version`; "" for lists. */
  id: string;
  requestUri: string;
  status: number;
  objectId: string;
  appId: string;
  userName?: string | undefined;
  /** The resource whose managed identity it is, as the claim `xms_mirid` says it. */
  identityOf?: string | undefined;
}

/** A sign-in of an application with a credential. */
export interface SignInEvent {
  table: "AADServicePrincipalSignInLogs";
  at: number;
  appId: string;
  /** "" where none of the application's credentials was accepted. */
  keyId: string;
  name: string;
  /** `0`, or the number of Entra's error. */
  result: string;
}

export type LogEvent = VaultEvent | SignInEvent;

/** Reads that are counted when a query comes, and never kept: so many a day, shared out evenly. */
export interface Volume {
  rowsPerDay: number;
  vaultId: string;
  /** `https://kv.vault.localhost` */
  vaultUri: string;
  secrets: number;
  readers: number;
}

export interface Workspace {
  id: string;
  name: string;
  /** The workspace's resource id. */
  resourceId: string;
  /** A table that nothing was ever sent to does not exist. */
  tables: Set<TableName>;
  /** Names of the vaults whose diagnostic settings name it; undefined: of all. */
  vaults: Set<string> | undefined;
  /** An event can be asked for so long after it came about. */
  delayMilliseconds: number;
  volume: Volume | undefined;
  events: LogEvent[];
}

/** Events of a workspace that are kept. */
const KEPT = 200_000;

/** The Log Analytics workspaces of the company, and what lies in them. */
export class Workspaces {
  readonly all: readonly Workspace[];
  readonly #clock: CloudClock;

  constructor(clock: CloudClock) {
    this.#clock = clock;
    const workspace = (name: string, tables: TableName[], vaults?: string[]): Workspace => ({
      id: guidFrom(`workspace ${name}`),
      name,
      resourceId: `/subscriptions/${guidFrom("workspaces")}/resourceGroups/rg-logs/providers/Microsoft.OperationalInsights/workspaces/${name}`,
      tables: new Set(tables),
      vaults: vaults && new Set(vaults),
      delayMilliseconds: 0,
      volume: undefined,
      events: [],
    });
    this.all = [
      workspace("law-operations", ["AZKVAuditLogs", "AADServicePrincipalSignInLogs"]),
      workspace("law-former", ["AzureDiagnostics"], []),
    ];
  }

  find(id: string): Workspace | undefined {
    return this.all.find((one) => one.id === id.toLowerCase() || one.name === id);
  }

  /** @throws {Error} when there is none. */
  named(id: string): Workspace {
    const found = this.find(id);
    if (found === undefined) throw new Error(`No workspace ${id}`);
    return found;
  }

  /** A request that a vault answered. */
  vaultRequest(vaultName: string, event: Omit<VaultEvent, "table" | "at">): void {
    for (const workspace of this.all) {
      if (workspace.vaults !== undefined && !workspace.vaults.has(vaultName.toLowerCase())) continue;
      const table = workspace.tables.has("AZKVAuditLogs") ? "AZKVAuditLogs" : "AzureDiagnostics";
      this.#keep(workspace, { ...event, table, at: this.#clock.now() });
    }
  }

  signedIn(event: Omit<SignInEvent, "table" | "at">): void {
    for (const workspace of this.all) {
      const table = "AADServicePrincipalSignInLogs";
      if (workspace.tables.has(table)) this.#keep(workspace, { ...event, table, at: this.#clock.now() });
    }
  }

  /** An event that came about at any time. */
  plant(id: string, event: LogEvent): void {
    const workspace = this.named(id);
    workspace.tables.add(event.table);
    this.#keep(workspace, event);
  }

  /** What a query sees now of a span; `to` is exclusive. */
  *seen(workspace: Workspace, from: number, to: number): Generator<LogEvent> {
    const arrived = this.#clock.now() - workspace.delayMilliseconds;
    for (const event of workspace.events)
      if (event.at >= from && event.at < to && event.at <= arrived && workspace.tables.has(event.table)) yield event;
  }

  /** Up to when the events of a workspace have arrived. */
  arrivedUntil({ delayMilliseconds }: Workspace): number {
    return this.#clock.now() - delayMilliseconds;
  }

  #keep({ events }: Workspace, event: LogEvent): void {
    events.push(event);
    if (events.length >= 2 * KEPT) events.splice(0, KEPT);
  }
}
