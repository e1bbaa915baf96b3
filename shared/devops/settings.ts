import * as z from "zod";
import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { entity, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { organizationAddress } from "./org-url.ts";

/**
 * A secret variable that contains a copy of a key vault secret. An administrator configures it, because DevOps does not return
 * the value with which the service could find it.
 */
export const VariableCopy = z.object({
  /** Project ID in lower case. */
  projectId: z.string(),
  groupId: z.int(),
  variable: z.string(),
  vaultName: z.string(),
  secretName: z.string(),
});
export type VariableCopy = z.infer<typeof VariableCopy>;

const record = z.object({
  /** URL of the organization as an administrator entered it. Absent while the integration is turned off. */
  orgUrl: z.string().optional(),
  /** IDs or names of the scanned projects. Empty: all projects that the identity can see. */
  projectIds: z.array(z.string()),
  copies: z.array(VariableCopy).default([]),
  /** Gets a new value with each change. It is the ETag in the API. */
  revision: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
/** The stored settings of the Azure DevOps integration. */
export type DevopsSettings = z.infer<typeof record>;

/** The row of the settings. It is signed, because it decides where the service's token and rotated secrets are sent. */
export const SettingsRow = entity("Devops", record, { signed: true });
export const DEVOPS = "devops";
export const SETTINGS = "settings";

/** The settings before an administrator saves any. Their revision is `none`, and their time is not shown. */
const UNCONFIGURED: DevopsSettings = {
  projectIds: [],
  copies: [],
  revision: "none",
  updatedAt: new Date(0).toISOString(),
  updatedBy: "system",
};

/** A change of the settings. Members that are left out stay. */
export interface SettingsChange {
  orgUrl?: string | null;
  projectIds?: string[];
  copies?: VariableCopy[];
}

/** Reads and changes the settings of the Azure DevOps integration. */
export interface DevopsSettingsStore {
  /** Reads the settings. Costs one read. */
  read(): Promise<DevopsSettings>;
  /**
   * Changes the settings.
   *
   * @param change - Any subset of the members. `orgUrl` null turns the integration off and keeps the other members.
   * @throws {Problem} invalidRequest for a URL that is not of Azure DevOps; serviceVault; conflict; preconditionFailed
   */
  change(change: SettingsChange, ifMatch: string | undefined, caller: Caller): Promise<DevopsSettings>;
}

export interface SettingsDependencies {
  tables: Tables;
  audit: AuditRecorder;
  config: Pick<Config, "AZURE_DEVOPS_ENDPOINT" | "SERVICE_KEY_VAULT_URL">;
  clock: Clock;
  randomness: Randomness;
}

export function createDevopsSettings(deps: SettingsDependencies): DevopsSettingsStore {
  const { tables, audit, config, clock, randomness } = deps;
  const readRow = () => tables.get(SettingsRow, DEVOPS, SETTINGS);

  /**
   * Writes a change. After a conflict with another write, applies the change to the new settings. With `ifMatch`, the change then
   * fails, because the new settings have another ETag.
   */
  async function write(
    { orgUrl, projectIds, copies }: SettingsChange,
    ifMatch: string | undefined,
    caller: Caller,
  ): Promise<DevopsSettings> {
    return await repeatOnConflict(async () => {
      const row = await readRow();
      const { orgUrl: storedUrl, ...before } = row ? withoutKeys(row) : UNCONFIGURED;
      requireMatch(etagOf(before), ifMatch, THE_SETTINGS);
      const changedAt = clock.now();
      // Undefined keeps the stored URL, null removes it.
      const newUrl = orgUrl === undefined ? storedUrl : orgUrl;
      const next: DevopsSettings = {
        ...before,
        ...(newUrl && { orgUrl: newUrl }),
        ...(projectIds && { projectIds: [...new Set(projectIds)] }),
        ...(copies && { copies }),
        revision: randomness.ulid(changedAt),
        updatedAt: changedAt.toISOString(),
        updatedBy: caller.actor,
      };
      if (row) await tables.replace(SettingsRow, { ...keysOf(row), ...next });
      else await tables.insert(SettingsRow, DEVOPS, SETTINGS, next);
      return next;
    });
  }

  return {
    async read() {
      const row = await readRow();
      return row ? withoutKeys(row) : UNCONFIGURED;
    },

    async change(change, ifMatch, caller) {
      if (config.SERVICE_KEY_VAULT_URL === undefined) {
        throw new Problem(
          "conflict",
          "Addresses that receive tokens and secrets are signed with a key in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL.",
        );
      }
      if (typeof change.orgUrl === "string" && organizationAddress(change.orgUrl, config) === undefined) {
        const endpoint = config.AZURE_DEVOPS_ENDPOINT;
        throw invalidBody(
          "orgUrl",
          `must be https://dev.azure.com/{organization} or https://{organization}.visualstudio.com${endpoint ? `, or be at ${endpoint}` : ""}`,
        );
      }
      for (const { vaultName } of change.copies ?? []) {
        if (isServiceVault(config, vaultName)) {
          throw new Problem("serviceVault", "Secrets in the service's own key vault are never copied to Azure DevOps.");
        }
      }
      const before = auditView(await this.read());
      const event = { type: "devops.configured", caller, target: { type: "devops", id: SETTINGS }, before };
      return await audited(
        audit,
        event,
        () => write(change, ifMatch, caller),
        (after) => ({ after: auditView(after) }),
      );
    },
  };
}

const THE_SETTINGS = "The settings of the DevOps integration";

export const etagOf = ({ revision }: Pick<DevopsSettings, "revision">): string => `"${revision}"`;

const keysOf = <T extends { partitionKey: string; rowKey: string; etag: string }>(row: T) => {
  const { partitionKey, rowKey, etag } = row;
  return { partitionKey, rowKey, etag };
};

const auditView = ({ orgUrl, projectIds, copies }: DevopsSettings) => ({ orgUrl: orgUrl ?? null, projectIds, copies });
