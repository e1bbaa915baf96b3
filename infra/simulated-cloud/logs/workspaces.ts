// Log Analytics workspaces with the events that the simulated cloud writes to them.

import type { CloudClock } from "../clock.ts";
import { guidFrom } from "../vaults/identifiers.ts";

/** Tables that the simulated workspaces contain. */
export const TABLES = ["AZKVAuditLogs", "AzureDiagnostics", "AADServicePrincipalSignInLogs"] as const;
export type TableName = (typeof TABLES)[number];

/** A request to a key vault, as the log category AuditEvent records it. */
export interface VaultEvent {
  table: "AZKVAuditLogs" | "AzureDiagnostics";
  /** Unix milliseconds. */
  at: number;
  /** Operation name, such as `SecretGet`. */
  operation: string;
  /** Resource ID of the vault. */
  vaultId: string;
  /** URL of the requested item with its version: `https://kv.vault.localhost/secrets/name/version`. Empty for lists. */
  id: string;
  requestUri: string;
  status: number;
  objectId: string;
  appId: string;
  userName?: string | undefined;
  /** Resource of the managed identity, as in the claim `xms_mirid`. */
  identityOf?: string | undefined;
}

/** A sign-in of an application with a credential. */
export interface SignInEvent {
  table: "AADServicePrincipalSignInLogs";
  at: number;
  appId: string;
  /** Key ID of the credential. Empty if no credential of the application was accepted. */
  keyId: string;
  name: string;
  /** `0`, or Entra's error code. */
  result: string;
}

export type LogEvent = VaultEvent | SignInEvent;

/** Generated reads, for load tests: a number per day, evenly distributed. They are computed at query time and not stored. */
export interface Volume {
  rowsPerDay: number;
  vaultId: string;
  /** URL of the vault, such as `https://kv.vault.localhost`. */
  vaultUri: string;
  secrets: number;
  readers: number;
}

/** A Log Analytics workspace of the company. */
export interface Workspace {
  id: string;
  name: string;
  /** Resource ID of the workspace. */
  resourceId: string;
  /** Tables of the workspace. A table exists only after its first event. */
  tables: Set<TableName>;
  /** Names of the vaults whose diagnostic settings target the workspace. Undefined: all vaults. */
  vaults: Set<string> | undefined;
  /** Milliseconds until a new event is visible to queries. */
  delayMilliseconds: number;
  volume: Volume | undefined;
  events: LogEvent[];
}

/** A workspace stores at least this number of latest events. */
const MAX_STORED_EVENTS = 200_000;

/** Stores the company's Log Analytics workspaces and their events. */
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
      // No vault writes to this workspace. Tests add its events.
      workspace("law-former", ["AzureDiagnostics"], []),
    ];
  }

  find(id: string): Workspace | undefined {
    return this.all.find((one) => one.id === id.toLowerCase() || one.name === id);
  }

  /**
   * Returns a workspace.
   * @throws {Error} if there is none.
   */
  getOrThrow(id: string): Workspace {
    const workspace = this.find(id);
    if (workspace === undefined) throw new Error(`Unknown workspace ${id}`);
    return workspace;
  }

  /** Records a request that a vault answered. */
  recordVaultRequest(vaultName: string, event: Omit<VaultEvent, "table" | "at">): void {
    for (const workspace of this.all) {
      if (workspace.vaults !== undefined && !workspace.vaults.has(vaultName.toLowerCase())) continue;
      const table = workspace.tables.has("AZKVAuditLogs") ? "AZKVAuditLogs" : "AzureDiagnostics";
      this.#store(workspace, { ...event, table, at: this.#clock.now() });
    }
  }

  /** Records a sign-in. */
  recordSignIn(event: Omit<SignInEvent, "table" | "at">): void {
    for (const workspace of this.all) {
      const table = "AADServicePrincipalSignInLogs";
      if (workspace.tables.has(table)) this.#store(workspace, { ...event, table, at: this.#clock.now() });
    }
  }

  /** Adds an event with any time, for tests. */
  addEvent(id: string, event: LogEvent): void {
    const workspace = this.getOrThrow(id);
    workspace.tables.add(event.table);
    this.#store(workspace, event);
  }

  /** Returns the events of an interval that queries can see now. `to` is exclusive. */
  *visibleEvents(workspace: Workspace, from: number, to: number): Generator<LogEvent> {
    const visibleUntil = this.#clock.now() - workspace.delayMilliseconds;
    for (const event of workspace.events)
      if (event.at >= from && event.at < to && event.at <= visibleUntil && workspace.tables.has(event.table))
        yield event;
  }

  /** Returns the time up to which the events of a workspace are visible. */
  visibleUntil({ delayMilliseconds }: Workspace): number {
    return this.#clock.now() - delayMilliseconds;
  }

  #store({ events }: Workspace, event: LogEvent): void {
    events.push(event);
    if (events.length >= 2 * MAX_STORED_EVENTS) events.splice(0, MAX_STORED_EVENTS);
  }
}
