import { pMapIterable } from "p-map";
import { audited } from "../../audit/audited.ts";
import type { AuditRecorder } from "../../audit/event.ts";
import { createAppService } from "../../platform/azure/app-service.ts";
import type { Arm } from "../../platform/azure/arm.ts";
import { createContainerApps } from "../../platform/azure/container-apps.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { createResourceGraph } from "../../platform/azure/resource-graph.ts";
import type { ResourceManager } from "../../platform/azure/resource-manager.ts";
import type { VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Randomness } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import { createAccessCheck } from "../azure/access-check.ts";
import type { ResourceRow } from "../azure/finder.ts";
import { FINDER_OF } from "../azure/finders.ts";
import { resourcesOfTypes } from "../azure/queries.ts";
import { notSeenOf, readRow, resourceOf, unreadableRow } from "../azure/resource-rows.ts";
import type { Edge } from "../edge.ts";
import type { EdgeSource, ReadingItem } from "../edge-source.ts";
import { CONTAINER_APP_TYPES, SITE_TYPES, settingsOf } from "./settings.ts";
import { type LinkedKeys, readVaultValues, type VaultValues } from "./vault-values.ts";

/** Number of apps that are read concurrently. Azure Resource Manager allows an identity 25 reads a second in a subscription. */
const APPS_AT_ONCE = 4;

/** Maximum time for reading the values, out of the 20 minutes that a run has for a subscription. */
const MAX_READ_VALUES_MS = 12 * MINUTE_MS;

/**
 * Time after which the hashes of the secret values are dropped. It is counted from the start of the last subscription, which
 * takes at most 20 minutes.
 */
const HASHES_LIFETIME_MS = 30 * MINUTE_MS;

const OFF = {
  code: "switchedOff",
  message: "Plaintext-secret detection is off: copies of secrets in app settings are not found.",
  remedy: "To turn it on, set DEPENDENCY_LITERAL_SCAN to true and assign the required roles (docs/permissions.md).",
};

/**
 * Source of plaintext copies: settings of web apps, function apps, slots, Container Apps and jobs whose value equals a secret
 * that the identity may read. Off unless `DEPENDENCY_LITERAL_SCAN` is true, and part of full runs only. A process reads the
 * values once per run, stores their HMACs under an in-memory key, and drops them afterwards. The audit log records the read.
 */
export function createLiteralSource(deps: {
  config: Config;
  tables: Tables;
  arm: Arm;
  resourceManager: ResourceManager;
  vaults: VaultSecretsClients;
  audit: AuditRecorder;
  randomness: Randomness;
  /** Returns the keys of Azure resources of which a vault secret stores one. @throws {CloudFailure} */
  keysOfLinks(signal: AbortSignal): AsyncIterable<LinkedKeys>;
  /** Returns the monitored subscriptions. @throws {CloudFailure} */
  units(): Promise<string[]>;
  /** Returns the object ID of the identity's principal, as role assignments name it. */
  ownObjectId(): Promise<string | undefined>;
}): EdgeSource {
  const { config, arm, audit } = deps;
  const resourceGraph = createResourceGraph(arm);
  const accessCheck = createAccessCheck(deps);
  const clients = { appService: createAppService(arm), containerApps: createContainerApps(arm) };
  let cached: { runId: string; values: Promise<VaultValues> } | undefined;
  let dropTimer: NodeJS.Timeout | undefined;

  /** Returns the hashes of all vaults' secret values. The first subscription of a run reads them, the others share them. */
  function valuesOf(runId: string): Promise<VaultValues> {
    clearTimeout(dropTimer);
    dropTimer = setTimeout(() => {
      cached = undefined;
    }, HASHES_LIFETIME_MS).unref();
    if (cached?.runId !== runId) {
      const values = readValues(runId);
      cached = { runId, values };
      // After a failure, the next subscription of the run reads the values again.
      values.catch(() => {
        if (cached?.values === values) cached = undefined;
      });
    }
    return cached.values;
  }

  const readValues = (runId: string): Promise<VaultValues> =>
    audited(
      audit,
      {
        type: "dependencies.valuesRead",
        caller: { actor: "system", requestId: runId },
        target: { type: "dependencyRun", id: runId },
      },
      async () => await readVaultValues(deps, await deps.units(), AbortSignal.timeout(MAX_READ_VALUES_MS)),
      ({ counts }) => ({ details: { ...counts } }),
    );

  /** Reads one app and compares its settings. */
  async function findCopies(
    row: ResourceRow,
    values: VaultValues,
    signal: AbortSignal | undefined,
  ): Promise<ReadingItem[]> {
    const finder = FINDER_OF.get(row.type);
    if (!finder) return [];
    const resource = { ...resourceOf(row), kind: finder.kind(row) };
    try {
      const { settings, failures } = await settingsOf(row, clients, signal);
      // The unit's time ran out: ends the read, instead of reporting each remaining app as one that can't be read.
      if (failures[0] && signal?.aborted) throw failures[0];
      const edges = settings.flatMap(({ evidence, value }) =>
        values.secretsIn(value).map(
          ({ vaultName, name, keyNames }): Edge => ({
            vaultName,
            type: "secret",
            name,
            resource,
            strength: "references",
            evidence,
            refresh: { how: "willBreak" },
            copy: true,
            ...(keyNames.length > 0 && { keyNames }),
          }),
        ),
      );
      // If settings or secret values could not be read, copies that an earlier run found are kept.
      const isPartial = failures.length > 0 || values.incomplete;
      return [
        { resource, edges, ...(isPartial && { partial: true }) },
        ...failures.map((one) => ({ notSeen: notSeenOf(row.id, one) })),
      ];
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "notFound") throw error;
      return [{ gone: row.id }];
    }
  }

  return {
    name: "literals",
    ...(config.DEPENDENCY_LITERAL_SCAN ? {} : { off: OFF }),
    units: deps.units,

    async *read(unit, { since, signal, runId = "" }) {
      if (since !== undefined) return;
      await accessCheck.requireAccess(unit, signal);
      const values = await valuesOf(runId);
      let rowsSeen = 0;
      for (const query of QUERIES) {
        for await (const page of resourceGraph.query(query, [unit], signal)) {
          rowsSeen += page.length;
          const rows: ResourceRow[] = [];
          for (const one of page) {
            const row = readRow(one);
            if (row) rows.push(row);
            else yield { notSeen: unreadableRow(one, unit) };
          }
          for await (const items of pMapIterable(rows, (row) => findCopies(row, values, signal), {
            concurrency: APPS_AT_ONCE,
          }))
            yield* items;
        }
      }
      const emptyItem = rowsSeen === 0 ? await accessCheck.explainEmpty(unit, signal) : undefined;
      if (emptyItem) yield { notSeen: emptyItem };
      for (const notSeen of values.notSeenIn(unit)) yield { notSeen };
    },
  };
}

const QUERIES = [resourcesOfTypes(SITE_TYPES), resourcesOfTypes(CONTAINER_APP_TYPES, { properties: true })];
