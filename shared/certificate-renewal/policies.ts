import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { type AssetRecord, assetId } from "../inventory/asset.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { notFound } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { Authorities } from "./authorities.ts";
import { type KeySpec, POLICIES, Policies, policyKey, type RenewalPolicy, SCHEDULES, Schedules } from "./policy.ts";

/** What a user configures of a policy. */
export interface PolicyChange {
  authorityId: string | null;
  automatic: boolean;
  trigger: RenewalPolicy["trigger"];
  lifetimeShare: number;
  /** Undefined: as in the policy of the certificate in the vault. */
  key?: KeySpec | undefined;
}

/** Policies by which certificates are renewed. */
export interface RenewalPolicies {
  /** @throws {Problem} notFound */
  policyOf(id: string): Promise<Row<RenewalPolicy>>;
  setPolicy(id: string, change: PolicyChange, ifMatch: string | undefined, caller: Caller): Promise<Row<RenewalPolicy>>;
  removePolicy(id: string, caller: Caller): Promise<void>;
}

/** @param deps.certificateOf - Returns the certificate of an asset ID. It throws {Problem} notFound and serviceVault. */
export function createRenewalPolicies(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  authorities: Pick<Authorities, "get">;
  clock: Clock;
  certificateOf: (id: string) => Promise<AssetRecord>;
}): RenewalPolicies {
  const { tables, audit, authorities, clock, certificateOf } = deps;
  return {
    async policyOf(id) {
      const policy = await tables.get(Policies, POLICIES, policyKey(id));
      if (policy === undefined) throw notFound(`The renewal policy of ${id.slice(0, 300)}`);
      return policy;
    },

    async setPolicy(id, change, ifMatch, caller) {
      const asset = await certificateOf(id);
      if (change.authorityId !== null) await authorities.get(change.authorityId);
      let before: Row<RenewalPolicy> | undefined;
      try {
        before = await tables.get(Policies, POLICIES, policyKey(id));
      } catch (error) {
        // Saving the policy again is how an administrator repairs a changed row.
        if (!(error instanceof StorageCorrupt)) throw error;
        await tables.remove(Policies, POLICIES, policyKey(id));
      }
      if (before) requireMatch(before.etag, ifMatch, "The renewal policy");
      const { authorityId, ...rest } = change;
      const policy: RenewalPolicy = {
        assetId: assetId(asset),
        vaultName: asset.vaultName,
        vaultId: asset.vaultId,
        certificate: asset.name,
        ...(authorityId !== null && { authorityId: authorityId.toUpperCase() }),
        ...rest,
        updatedAt: clock.now().toISOString(),
        updatedBy: caller.actor,
      };
      const event = {
        type: "certificatePolicy.changed",
        caller,
        target: { type: "asset", id: policy.assetId },
        ...(before && { before: withoutKeys(before) }),
        after: { ...policy },
      };
      return await audited(audit, event, () =>
        conditionalWrite(
          before
            ? tables.replace(Policies, { ...before, ...policy, authorityId: policy.authorityId, key: policy.key })
            : tables.insert(Policies, POLICIES, policyKey(id), policy),
          ifMatch,
          "The renewal policy",
        ),
      );
    },

    async removePolicy(id, caller) {
      let exists = false;
      const onCorrupt = () => {
        exists = true;
      };
      if (await tables.get(Policies, POLICIES, policyKey(id), { onCorrupt })) exists = true;
      if (!exists) throw notFound(`The renewal policy of ${id.slice(0, 300)}`);
      const target = { type: "asset", id: id.toLowerCase() };
      await audited(audit, { type: "certificatePolicy.removed", caller, target }, async () => {
        await tables.remove(Schedules, SCHEDULES, policyKey(id));
        await tables.remove(Policies, POLICIES, policyKey(id));
      });
    },
  };
}
