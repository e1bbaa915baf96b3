import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import type { RefusedIdentity } from "./api.ts";
import { pageOfRows } from "./row-pages.ts";
import {
  type ExternalIdentity,
  Identity,
  identityId,
  identityKey,
  REFUSALS,
  Refusal,
  USERS_PARTITION,
  type UserRecord,
  userKey,
} from "./user.ts";
import { refusedIdentityView } from "./views.ts";

/** The SSO identities (issuer and subject at a provider) that are linked to users or blocked. User administration uses it. */
export interface Identities {
  /**
   * Throws if an identity is blocked or linked to another user.
   *
   * @throws {Problem} conflict
   */
  requireFree(identity: ExternalIdentity, user: string): Promise<void>;
  /**
   * Returns the operations that move a user's identity link, for the transaction of the user. The transaction fails if another
   * user has the new identity.
   */
  linkOperations(before: UserRecord, after: UserRecord): Operation[];
  /**
   * Returns the operations that block the identity of a deleted user, so that single sign-on does not create the user again.
   */
  blockOperations(user: UserRecord, caller: Caller): Operation[];
  /** Lists blocked identities in the order of their ids. */
  refusals(page: PageRequest): Promise<Page<RefusedIdentity>>;
  /** Unblocks an identity. @throws {Problem} notFound */
  allow(id: string, caller: Caller): Promise<void>;
}

export function createIdentities(deps: { tables: Tables; audit: Audit; clock: Clock }): Identities {
  const { tables, audit, clock } = deps;
  return {
    async requireFree(identity, user) {
      const row = await tables.get(Identity, USERS_PARTITION, identityKey(identity));
      if (row?.refused) {
        throw new Problem(
          "conflict",
          "This identity is blocked because its user was deleted. Unblock it first with DELETE /auth/sso/refused/{identity_id}.",
        );
      }
      if (row && row.user !== user) throw identityTaken();
    },

    linkOperations(before, after) {
      const [oldKey, newKey] = [before.sso && identityKey(before.sso), after.sso && identityKey(after.sso)];
      if (oldKey === newKey) return [];
      return [
        ...(oldKey === undefined ? [] : [remove(Identity, oldKey)]),
        ...(newKey === undefined ? [] : [insert(Identity, newKey, { user: userKey(after.username) })]),
      ];
    },

    blockOperations({ username, sso }, caller) {
      if (!sso) return [];
      const refusal = { ...sso, username, refusedAt: clock.now().toISOString(), refusedBy: caller.actor };
      return [
        put(Identity, identityKey(sso), { user: userKey(username), refused: true }),
        put(Refusal, REFUSALS + identityId(sso), refusal),
      ];
    },

    async refusals(page) {
      const select = ["issuer", "subject", "username", "refusedAt", "refusedBy"] as const;
      const rowPage = await pageOfRows(tables, Refusal, { from: REFUSALS, before: keyEnd(REFUSALS), select }, page);
      return { ...rowPage, items: rowPage.items.map(refusedIdentityView) };
    },

    async allow(id, caller) {
      const refusal = await tables.get(Refusal, USERS_PARTITION, REFUSALS + id);
      if (!refusal) throw notFound("This blocked identity");
      const { issuer, subject, username } = refusal;
      const event = {
        type: "user.identityAllowed",
        caller,
        target: { type: "ssoIdentity", id },
        details: { issuer, subject, username },
      };
      await audited(audit, event, () =>
        tables.transaction(Refusal.table, USERS_PARTITION, [
          remove(Refusal, refusal.rowKey, refusal.etag),
          remove(Identity, identityKey(refusal)),
        ]),
      );
    },
  };
}

export const identityTaken = (): Problem =>
  new Problem("conflict", "This identity is linked to another user. Remove it there first.");
