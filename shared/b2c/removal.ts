import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { CREDENTIAL_KINDS } from "../inventory/asset.ts";
import { b2cTenantOf, holderSubscription } from "../inventory/holder.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { type InventoryWriter, VaultBusy } from "../inventory/write.ts";
import type { HolderWriting } from "../inventory/write-holder.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { notFound } from "../platform/http/problem.ts";
import { createDiscoveryRuns } from "../platform/runs/discovery-runs.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import type { StoredSecrets } from "../secrets/stored-secrets.ts";
import { holdersOf } from "./read-tenant.ts";
import { type Registry, THE_TENANT, tenantTarget } from "./registry.ts";
import { Runs, runsOf, Statuses, statusKey, TENANTS, TenantRows, tenantKey } from "./tenant.ts";

/** Removes tenants from the registry, with their assets, discovery runs and secret. */
export interface Removal {
  /**
   * Removes a tenant. When it returns, the tenant is no longer registered. Its assets and its secret may be deleted a little
   * later.
   *
   * @param scheduleFinish - Sends a message that calls `finish` again.
   * @throws {Problem} notFound, preconditionFailed
   */
  remove(
    tenantId: string,
    ifMatch: string | undefined,
    caller: Caller,
    scheduleFinish: (tenantId: string) => Promise<void>,
  ): Promise<void>;
  /**
   * Finishes an interrupted removal. Does nothing if there is none.
   *
   * @throws {VaultBusy} while another worker writes the assets
   */
  finish(tenantId: string): Promise<void>;
  /** Deletes assets of tenants that are not registered: a slow worker may have written them after the removal. */
  sweep(): Promise<void>;
}

/** Creates the removal of tenants. */
export function createRemoval(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  registry: Registry;
  secrets: StoredSecrets;
  inventory: Omit<HolderWriting, "confirm" | "writer"> & { writer: Pick<InventoryWriter, "readForUpdate" | "forget"> };
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Removal {
  const { tables, audit, registry, secrets, inventory, clock, randomness, log } = deps;

  async function deleteAssets(holder: string, workerId: string): Promise<void> {
    const holderState = await inventory.writer.readForUpdate(holder);
    if (!holderState.row) return;
    const vault: VaultRecord = withoutKeys(holderState.row);
    // `prepareChange` returns the writes of data that is derived from the assets, such as compliance results.
    await inventory.writer.forget(holderState, workerId, () =>
      inventory.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
    );
  }

  async function deleteTenantData(tenantId: string): Promise<void> {
    const runs = createDiscoveryRuns(runsOf(tenantId), deps);
    const active = await runs.active();
    const timestamp = clock.now().toISOString();
    const failure = {
      list: "organization",
      code: "removed",
      message: "The tenant was removed.",
      remedy: "Nothing to do.",
      at: timestamp,
    };
    // At its next step the run's worker finds that it no longer owns the run, and stops.
    if (active) await runs.fail(active.runId, failure);
    const workerId = `removal/${randomness.ulid(clock.now())}`;
    for (const kind of CREDENTIAL_KINDS)
      for (const holder of holdersOf(tenantId, kind)) await deleteAssets(holder, workerId);
    const { partitionKey } = runsOf(tenantId);
    for await (const rows of tables.pages(Runs, { partitionKey, select: ["runId"] })) {
      const removals = rows.map(({ rowKey }) => remove(Runs, rowKey));
      await tables.write(Runs.table, partitionKey, removals);
    }
  }

  async function finish(tenantId: string): Promise<void> {
    const { row } = await registry.readRow(tenantId);
    if (!row?.removing) return;
    await deleteTenantData(row.tenantId);
    await secrets.remove(row.clientSecret);
    await tables.remove(Statuses, TENANTS, statusKey(row.tenantId));
    // Deleted last, so that the tenant can't be registered again before its data is deleted.
    await tables.remove(TenantRows, TENANTS, tenantKey(row.tenantId));
  }

  return {
    finish,

    async remove(given, ifMatch, caller, scheduleFinish) {
      const { row, broken } = await registry.readRow(given);
      const tenantId = given.toLowerCase();
      const etag = (row ?? broken)?.etag;
      if (etag === undefined || row?.removing) throw notFound(`${THE_TENANT} ${given.slice(0, 64)}`);
      requireMatch(etag, ifMatch, THE_TENANT);
      const event = { type: "b2cTenant.removed", caller, target: tenantTarget(tenantId) };
      const { clientSecret: _, ...before } = row ? withoutKeys(row) : {};
      await audited(audit, { ...event, ...(row && { before }) }, async () => {
        if (!row) {
          // The invalid row does not say which secret belongs to the tenant. The daily clean-up deletes the secret within two
          // days.
          await deleteTenantData(tenantId);
          await tables.remove(Statuses, TENANTS, statusKey(tenantId));
          await tables.remove(TenantRows, TENANTS, tenantKey(tenantId), etag);
          return;
        }
        // The message is sent before the deletion starts, so that it finishes the removal if this process crashes.
        await scheduleFinish(tenantId);
        await conditionalWrite(tables.replace(TenantRows, { ...row, removing: true }), ifMatch, THE_TENANT);
        try {
          await finish(tenantId);
        } catch (error) {
          // The tenant is unregistered. The message deletes the rest.
          if (!(error instanceof VaultBusy || error instanceof CloudFailure || isConflict(error))) throw error;
          log.warn("Removal of B2C tenant data is delayed", { tenantId, reason: error.name });
        }
      });
    },

    async sweep() {
      const registered = new Set((await registry.all()).map(({ row }) => row.tenantId));
      const prefix = vaultInSubscriptionKey(holderSubscription("b2c"), "");
      const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
      const workerId = `removal/${randomness.ulid(clock.now())}`;
      for await (const rows of tables.pages(Vaults, { ...range, select: ["name"] })) {
        for (const { name } of rows) {
          const tenantId = b2cTenantOf(name);
          if (tenantId === undefined || registered.has(tenantId)) continue;
          // A row that was tampered with is not listed, but its tenant is still registered.
          const { row, broken } = await registry.readRow(tenantId);
          if (!row && !broken) await deleteAssets(name, workerId);
        }
      }
    },
  };
}
