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
  of(appIds: readonly string[]): Promise<Map<string, Row<PolicyRecord>>>;
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

/** Up to this number, policies are read one by one. */
const SINGLE_LOOK_UPS = 20;

export function createPolicies(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  audit: AuditRecorder;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  clock: Clock;
  log: Logger;
  app: (appId: string) => Promise<PolicyApp | undefined>;
  passwordPolicy: Graph["passwordPolicy"];
  matches: Pick<MatchFinder, "of">;
}): RotationPolicies {
  const { tables, audit, clock } = deps;

  const stored = (appId: string) => tables.get(Policies, POLICIES, policyKey(appId));

  /** Returns undefined for a row that this service did not write, as lists of policies do. */
  async function trusted(appId: string): Promise<Row<PolicyRecord> | undefined> {
    try {
      return await stored(appId);
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      deps.log.error(error.message);
      return undefined;
    }
  }

  async function existing(appId: string, ifMatch: string | undefined): Promise<Row<PolicyRecord>> {
    const row = await stored(appId);
    if (!row) throw notFound(`A policy of the application ${appId}`);
    requireMatch(row.etag, ifMatch, THE_POLICY);
    return row;
  }

  /** Throws if the policy demands a rotation that could never succeed. */
  async function refuseImpossible(app: PolicyApp, change: PolicyChange): Promise<void> {
    for (const target of change.targets) {
      const place = secretPlace(target);
      if (!place) throw invalidBody("targets", `${target} must be the asset id of a vault's secret`);
      if (isServiceVault(deps.config, place.vaultName))
        throw new Problem("serviceVault", "The service's own key vault is never written by a rotation.");
    }
    if (!change.automatic) return;
    const refuse = (member: string, message: string) => {
      throw invalidBody(member, message);
    };
    if (app.reasons.length > 0) refuse("automatic", `can't be true: ${app.reasons.join(" ")}`);
    if (!app.passwords.some(({ expiresOn }) => expiresOn !== undefined))
      refuse(
        "automatic",
        "can't be true: the application has no client secret with an expiry, so none would ever be due",
      );
    if (!change.updateKeyVaults)
      refuse("updateKeyVaults", "must be true: a rotation that writes no vault secret needs a user to finish it");
    const { rotationTriggerDays, defaultValidityDays } = await deps.settings.values();
    const policy = await deps.passwordPolicy(app.objectId);
    if (policy !== "unknown" && !policy.allowed)
      refuse("automatic", "can't be true: an app management policy of the tenant forbids new client secrets");
    const days = lifetimeDays(change.expiryDays ?? defaultValidityDays, policy);
    const least = minLifetimeDays(rotationTriggerDays, change.overlapDays);
    if (days <= least)
      refuse(
        "expiryDays",
        `must give a lifetime of more than ${least} days, but a new secret would be valid for ${days}: rotationTriggerDays (${rotationTriggerDays}), overlapDays (${change.overlapDays}) and one day to spare${policy !== "unknown" && policy.longestDays !== undefined ? `, with at most ${policy.longestDays} by the tenant's policy` : ""}`,
      );
    const matches = (await deps.matches.of(app.appId)).matches.filter(({ confidence }) => confidence === "certain");
    const idOf = ({ secret }: (typeof matches)[number]) => assetId({ ...secret, type: "secret" });
    const certain = new Set(matches.map(idOf));
    for (const target of change.targets)
      if (!certain.has(target.toLowerCase()))
        refuse("targets", `${target} is not a certain match of the application. Verify or confirm it first`);
    const named = new Set(change.targets.map((target) => target.toLowerCase()));
    const written = new Set(matches.filter((match) => named.has(idOf(match))).map(({ keyId }) => keyId));
    // New places are not demanded: anyone may have put a copy there, and an administrator would approve it by naming it.
    const left = matches.filter(
      (match) => match.isKnown && match.secret.enabled && written.has(match.keyId) && !named.has(idOf(match)),
    );
    if (left.length > 0)
      refuse(
        "targets",
        `must also name ${left.map(idOf).join(", ")}, which stores the same client secret: otherwise the old secret could never be removed automatically`,
      );
    if (certain.size === 0)
      refuse(
        "automatic",
        "can't be true: no vault secret is a certain match, so the old secret could never be removed. Verify or confirm one first",
      );
  }

  /** Returns the resource IDs of the vaults of these targets, as far as the inventory knows them. */
  async function vaultIdsOf(targets: readonly string[]): Promise<Record<string, string>> {
    const names = new Set(targets.map((target) => secretPlace(target)!.vaultName));
    const vaults = await Promise.all([...names].map((name) => tables.get(Vaults, VAULTS, vaultKey(name))));
    return Object.fromEntries(vaults.flatMap((vault) => (vault ? [[vault.name.toLowerCase(), vault.id]] : [])));
  }

  return {
    get: async (appId) => await existing(appId, undefined),

    async of(appIds) {
      const found = new Map<string, Row<PolicyRecord>>();
      if (appIds.length <= SINGLE_LOOK_UPS) {
        for (const row of await Promise.all(appIds.map(trusted))) if (row) found.set(row.rowKey, row);
        return found;
      }
      const wanted = new Set(appIds.map(policyKey));
      for await (const rows of allPolicies(tables, deps.log))
        for (const row of rows) if (wanted.has(row.rowKey)) found.set(row.rowKey, row);
      return found;
    },

    async set(appId, change, caller, ifMatch) {
      if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
      const app = await deps.app(appId);
      if (!app) throw notFound(`The application ${appId}`);
      const before = await stored(appId);
      if (before) requireMatch(before.etag, ifMatch, THE_POLICY);
      else if (ifMatch !== undefined) throw changedSince(THE_POLICY);
      await refuseImpossible(app, change);
      const { expiryDays, ...rest } = change;
      const vaultIds = await vaultIdsOf(change.targets);
      const record: PolicyRecord = {
        ...rest,
        ...(change.targets.length > 0 && { vaultIds }),
        ...(expiryDays !== null && { expiryDays }),
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
        ...(before && { before: shownOf(before) }),
        after: shownOf(record),
      };
      return await audited(audit, event, () =>
        conditionalWrite(
          before
            ? tables.replace(Policies, { ...record, partitionKey: POLICIES, rowKey: before.rowKey, etag: before.etag })
            : tables.insert(Policies, POLICIES, policyKey(appId), record),
          ifMatch,
          THE_POLICY,
        ),
      );
    },

    async remove(appId, caller, ifMatch) {
      const row = await existing(appId, ifMatch);
      const event = {
        type: "rotation.policyRemoved",
        caller,
        target: { type: "application", id: row.appId },
        before: shownOf(row),
      };
      await audited(audit, event, () =>
        conditionalWrite(tables.remove(Policies, POLICIES, row.rowKey, row.etag), ifMatch, THE_POLICY),
      );
    },
  };
}

/** Lists all policies with one request per 1,000. Skips rows that this service did not write. */
export const allPolicies = (tables: Tables, log: Logger): AsyncGenerator<Row<PolicyRecord>[]> =>
  tables.pages(Policies, { partitionKey: POLICIES, onCorrupt: (row) => log.error(row.message) });

const THE_POLICY = "The policy";

/** Returns the days that a new secret is valid, limited by the tenant's policy. */
export const lifetimeDays = (days: number, policy: Awaited<ReturnType<Graph["passwordPolicy"]>>): number =>
  policy === "unknown" || policy.longestDays === undefined ? days : Math.min(days, policy.longestDays);

/** Returns the members that users set, for the audit log. */
const shownOf = ({ automatic, expiryDays, overlapDays, updateKeyVaults, targets }: PolicyRecord) => ({
  automatic,
  expiryDays: expiryDays ?? null,
  overlapDays,
  updateKeyVaults,
  targets,
});
