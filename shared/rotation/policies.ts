import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import { assetId } from "../inventory/asset.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Graph } from "../platform/azure/graph.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { changedSince, conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import type { MatchedApp } from "./match.ts";
import { secretPlace } from "./match-candidates.ts";
import { type MatchFinder, noServiceVault } from "./matches.ts";
import type { PolicyChange } from "./policies-api.ts";
import { minLifetimeDays, POLICIES, Policies, type PolicyRecord, policyKey } from "./policy.ts";

/** The properties of an application that policies need. */
export interface PolicyApp extends MatchedApp {
  /** Sentences about why none of its secrets can be rotated. Empty if they can. */
  reasons: readonly string[];
}

/** Stores the rotation policies of applications: how their secrets are rotated, and whether automatically. */
export interface RotationPolicies {
  /** @throws {Problem} notFound if the application has no policy. */
  get(appId: string): Promise<Row<PolicyRecord>>;
  /**
   * Returns the policies of the given applications by client ID in lower case. Makes one request each, or one per 1,000
   * policies.
   */
  getMany(appIds: readonly string[]): Promise<Map<string, Row<PolicyRecord>>>;
  /**
   * Replaces the policy of an application.
   *
   * @throws {Problem} notFound for an unknown application; invalidRequest with the invalid member; serviceVault;
   * preconditionFailed.
   */
  set(appId: string, change: PolicyChange, caller: Caller, ifMatch: string | undefined): Promise<Row<PolicyRecord>>;
  /** @throws {Problem} notFound, preconditionFailed */
  remove(appId: string, caller: Caller, ifMatch: string | undefined): Promise<void>;
}

/** Up to this number of applications, policies are read with one request each. For more, all policies are listed. */
const MAX_SINGLE_READS = 20;

export function createPolicies(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  audit: AuditRecorder;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  clock: Clock;
  log: Logger;
  /** Returns undefined for an unknown application. */
  app: (appId: string) => Promise<PolicyApp | undefined>;
  /** Reads the tenant's policy for the client secrets of an application. */
  passwordPolicy: Graph["passwordPolicy"];
  matches: Pick<MatchFinder, "listMatches">;
}): RotationPolicies {
  const { tables, audit, clock } = deps;

  const readPolicy = (appId: string) => tables.get(Policies, POLICIES, policyKey(appId));

  /** Returns undefined for a row that this service did not write, as lists of policies do. */
  async function readTrustedPolicy(appId: string): Promise<Row<PolicyRecord> | undefined> {
    const { row, broken } = await readRow(appId);
    if (broken) countLeftOut(broken, appId);
    return row;
  }

  /** Returns the stored row. `broken`: the row exists, but this service did not write it. */
  async function readRow(appId: string): Promise<{ row?: Row<PolicyRecord> | undefined; broken?: StorageCorrupt }> {
    try {
      return { row: await readPolicy(appId) };
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      return { broken: error };
    }
  }

  async function requirePolicy(appId: string, ifMatch: string | undefined): Promise<Row<PolicyRecord>> {
    const { row, broken } = await readRow(appId);
    if (broken) throw tampered(appId);
    if (!row) throw notFound(`A policy of the application ${appId}`);
    requireMatch(row.etag, ifMatch, POLICY_LABEL);
    return row;
  }

  /**
   * Checks a new policy. Its targets must be vault secrets, also if the policy is not automatic. An automatic policy must also allow
   * rotations that succeed and end without a user.
   *
   * @throws {Problem} invalidRequest, with the member that must change; serviceVault.
   */
  async function requirePossible(app: PolicyApp, change: PolicyChange): Promise<void> {
    for (const target of change.targets) {
      const place = secretPlace(target);
      if (!place) throw invalidBody("targets", `${target} must be the asset ID of a vault secret`);
      if (isServiceVault(deps.config, place.vaultName))
        throw new Problem("serviceVault", "The service's own key vault is never written by a rotation.");
    }
    if (!change.automatic) return;
    const reject = (member: string, message: string) => {
      throw invalidBody(member, message);
    };
    if (app.reasons.length > 0) reject("automatic", `can't be true: ${app.reasons.join(" ")}`);
    if (!app.passwords.some(({ expiresOn }) => expiresOn !== undefined))
      reject(
        "automatic",
        "can't be true: the application has no client secret with an expiry, so none would ever be due",
      );
    if (!change.updateKeyVaults)
      reject("updateKeyVaults", "must be true: a rotation that writes no vault secret needs a user to finish it");
    const { rotationTriggerDays, defaultValidityDays } = await deps.settings.values();
    const passwordPolicy = await deps.passwordPolicy(app.objectId);
    if (passwordPolicy !== "unknown" && !passwordPolicy.allowed)
      reject("automatic", "can't be true: an app management policy of the tenant forbids new client secrets");
    const days = lifetimeDays(change.expiryDays ?? defaultValidityDays, passwordPolicy);
    const minDays = minLifetimeDays(rotationTriggerDays, change.overlapDays);
    if (days <= minDays)
      reject(
        "expiryDays",
        `must give a lifetime of more than ${minDays} days, but a new secret would be valid for ${days}: rotationTriggerDays (${rotationTriggerDays}), overlapDays (${change.overlapDays}) and one day to spare${passwordPolicy !== "unknown" && passwordPolicy.longestDays !== undefined ? `, with at most ${passwordPolicy.longestDays} by the tenant's policy` : ""}`,
      );
    const matches = (await deps.matches.listMatches(app.appId)).matches.filter(
      ({ confidence }) => confidence === "certain",
    );
    const idOf = ({ secret }: (typeof matches)[number]) => assetId({ ...secret, type: "secret" });
    const certain = new Set(matches.map(idOf));
    for (const target of change.targets)
      if (!certain.has(target.toLowerCase()))
        reject(
          "targets",
          `${target} is not proven to store a secret of the application. Test or confirm the match first`,
        );
    const namedIds = new Set(change.targets.map((target) => target.toLowerCase()));
    // Client secrets that the named places store. Every known place of such a secret must be named too.
    const namedKeyIds = new Set(matches.filter((match) => namedIds.has(idOf(match))).map(({ keyId }) => keyId));
    // A place that is not known need not be named. Anyone may have put a copy there, and a place that a policy names is written.
    const unnamedPlaces = matches.filter(
      (match) => match.isKnown && match.secret.enabled && namedKeyIds.has(match.keyId) && !namedIds.has(idOf(match)),
    );
    if (unnamedPlaces.length > 0)
      reject(
        "targets",
        `must also name ${unnamedPlaces.map(idOf).join(", ")}, which stores the same client secret: otherwise the old secret could never be removed automatically`,
      );
    if (certain.size === 0)
      reject(
        "automatic",
        "can't be true: no key vault secret is proven to store a secret of the application, so the old secret could never be deleted. Test or confirm a match first",
      );
  }

  /** Returns the resource IDs of the vaults of these targets, as far as the inventory knows them. */
  async function vaultIdsOf(targets: readonly string[]): Promise<Record<string, string>> {
    const names = new Set(targets.map((target) => secretPlace(target)!.vaultName));
    const vaults = await Promise.all([...names].map((name) => tables.get(Vaults, VAULTS, vaultKey(name))));
    return Object.fromEntries(vaults.flatMap((vault) => (vault ? [[vault.name.toLowerCase(), vault.id]] : [])));
  }

  return {
    get: async (appId) => await requirePolicy(appId, undefined),

    async getMany(appIds) {
      const policies = new Map<string, Row<PolicyRecord>>();
      if (appIds.length <= MAX_SINGLE_READS) {
        for (const row of await Promise.all(appIds.map(readTrustedPolicy))) if (row) policies.set(row.rowKey, row);
        return policies;
      }
      const requestedKeys = new Set(appIds.map(policyKey));
      for await (const rows of allPolicies(tables, deps.log))
        for (const row of rows) if (requestedKeys.has(row.rowKey)) policies.set(row.rowKey, row);
      return policies;
    },

    async set(appId, change, caller, ifMatch) {
      if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
      const app = await deps.app(appId);
      if (!app) throw notFound(`The application ${appId}`);
      const { row: currentPolicy, broken } = await readRow(appId);
      if (broken) throw tampered(appId);
      if (currentPolicy) requireMatch(currentPolicy.etag, ifMatch, POLICY_LABEL);
      else if (ifMatch !== undefined) throw changedSince(POLICY_LABEL);
      await requirePossible(app, change);
      const { expiryDays, maintenanceWindow, ...rest } = change;
      const vaultIds = await vaultIdsOf(change.targets);
      const record: PolicyRecord = {
        ...rest,
        ...(change.targets.length > 0 && { vaultIds }),
        ...(expiryDays !== null && { expiryDays }),
        ...(maintenanceWindow !== null && { maintenanceWindow }),
        appId: app.appId,
        appName: app.displayName,
        targets: change.targets.map((target) => target.toLowerCase()),
        updatedAt: clock.now().toISOString(),
        updatedBy: caller.actor,
      };
      const event = {
        type: "rotation.policyChanged",
        caller,
        target: { type: "application", id: app.appId },
        ...(currentPolicy && { before: auditedMembers(currentPolicy) }),
        after: auditedMembers(record),
      };
      return await audited(audit, event, () =>
        conditionalWrite(
          currentPolicy
            ? tables.replace(Policies, {
                ...record,
                partitionKey: POLICIES,
                rowKey: currentPolicy.rowKey,
                etag: currentPolicy.etag,
              })
            : tables.insert(Policies, POLICIES, policyKey(appId), record),
          ifMatch,
          POLICY_LABEL,
        ),
      );
    },

    async remove(appId, caller, ifMatch) {
      // A row that this service did not write is deleted too, so that an administrator can repair it.
      const { broken } = await readRow(appId);
      const row = broken ? undefined : await requirePolicy(appId, ifMatch);
      const event = {
        type: "rotation.policyRemoved",
        caller,
        target: { type: "application", id: row?.appId ?? policyKey(appId) },
        ...(row && { before: auditedMembers(row) }),
      };
      const etag = (row ?? broken)!.etag;
      await audited(audit, event, () =>
        conditionalWrite(tables.remove(Policies, POLICIES, policyKey(appId), etag), ifMatch, POLICY_LABEL),
      );
    },
  };
}

/** Lists all policies with one request per 1,000. The answer names rows that this service did not write. */
export const allPolicies = (tables: Tables, log: Logger): AsyncGenerator<Row<PolicyRecord>[]> =>
  tables.pages(Policies, {
    partitionKey: POLICIES,
    onCorrupt: (row) => {
      log.error(row.message);
      countLeftOut(row, row.rowKey);
    },
  });

const POLICY_LABEL = "The policy";

const tampered = (appId: string) =>
  new Problem(
    "conflict",
    `The policy of the application ${appId.slice(0, 64)} was changed by another program and is not used. Find out who can write this service's tables. Then delete the policy and create it again.`,
  );

/** Returns the days that a new secret is valid: the requested days, limited by the tenant's policy for client secrets. */
export const lifetimeDays = (days: number, passwordPolicy: Awaited<ReturnType<Graph["passwordPolicy"]>>): number =>
  passwordPolicy === "unknown" || passwordPolicy.longestDays === undefined
    ? days
    : Math.min(days, passwordPolicy.longestDays);

/** Returns the members that users set, for the audit log. */
const auditedMembers = ({
  automatic,
  expiryDays,
  overlapDays,
  updateKeyVaults,
  targets,
  maintenanceWindow,
}: PolicyRecord) => ({
  automatic,
  expiryDays: expiryDays ?? null,
  overlapDays,
  updateKeyVaults,
  targets,
  maintenanceWindow: maintenanceWindow ?? null,
});
