import pMap from "p-map";
import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import { assetId } from "../inventory/asset.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { SignInOutcome } from "../platform/azure/sign-in-proof.ts";
import type { SecretVersion, VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem, retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import { loadOnce } from "../platform/load-once.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import {
  type ComparedSecret,
  MATCHED_SECRETS,
  type Match,
  type MatchedApp,
  MatchPointers,
  type MatchRecord,
  MatchRows,
  matchKey,
  matchPartition,
  pointerKey,
  type Statement,
} from "./match.ts";
import { findCandidates, readSecretRecord, secretPlace } from "./match-candidates.ts";
import { claimsOf, evaluateMatch } from "./match-evidence.ts";
import { createMatchIndex, type MatchIndex } from "./match-index.ts";
import { targetOf } from "./match-targets.ts";
import { failureIfDenied, PROOF_LIMITS, type Proof, verifyMatch } from "./match-verification.ts";
import { currentVersion } from "./plan-places.ts";
import { isCertain, type Matches, type Target } from "./targets.ts";
import { findWrittenPlaces, writtenMatches } from "./written-places.ts";

/** Number of vaults that are read concurrently for the targets of a rotation: vault secrets that it may have to write. */
const PARALLEL = 4;

/** Finds and verifies the matches: which vault secrets store which credentials of applications. */
export interface MatchFinder extends Matches {
  /** For the timer that updates the index. */
  readonly index: MatchIndex;
  /**
   * Returns the matches of an application, found by metadata and earlier results, most certain first. `coverage` has sentences
   * about what was not searched.
   *
   * @throws {Problem} notFound for an unknown application.
   */
  listMatches(appId: string): Promise<{ matches: Match[]; coverage: string[] }>;
  /**
   * Reads the current version of one secret and tests whether its value signs in as the application. Stores the result with the
   * version, not the value.
   *
   * @throws {Problem} notFound; serviceVault; conflict if the service has no own key vault; rateLimited beyond `PROOF_LIMITS`.
   * @throws {CloudFailure} if the failure is transient.
   */
  verify(
    appId: string,
    secret: { assetId: string },
    caller: Caller,
  ): Promise<{ match: Match | undefined; proof: Proof }>;
  /**
   * Stores a user's statement about the current version of a secret: that it stores a credential (a confirmation), or that it
   * stores none (a rejection, which also withdraws the confirmation). After a rejection of a version, its metadata alone stops
   * no rotation.
   *
   * @throws {Problem} notFound; serviceVault; conflict; invalidRequest for a credential that the application does not have.
   */
  confirm(
    appId: string,
    statement: { assetId: string; keyId?: string | undefined; confirmed: boolean },
    caller: Caller,
  ): Promise<Match | undefined>;
  /**
   * Returns the secrets that store, or may store, one credential now. Anyone with write access to a vault can write tags and
   * content types. So a target is `certain` only if a user confirmed its current version, or if the version signed in as the
   * application. A version without such a result is read and tested. A wrong value is tested again after a day.
   *
   * @throws {CloudFailure} if a place that a user confirmed or a rotation wrote can't be read now, or if the sign-in with its
   * value gives no clear answer. Other such places are returned as `unanswered`, so that no target is left out.
   */
  targetsOf(app: MatchedApp, keyId: string): Promise<Target[]>;
  /**
   * Returns the client secret that a vault secret certainly stores, as `targetsOf` finds it; undefined if it stores none.
   *
   * @throws {CloudFailure}
   */
  credentialOf(place: { vaultName: string; name: string }): Promise<{ appId: string; keyId: string } | undefined>;
}

export interface MatchDependencies {
  tables: Tables;
  audit: AuditRecorder;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  clock: Clock;
  log: Logger;
  limiter: RateLimiter;
  vaults: VaultSecretsClients;
  /** Returns undefined for an unknown application. */
  app: (appId: string) => Promise<MatchedApp | undefined>;
  proveSignIn: (appId: string, secret: string) => Promise<SignInOutcome>;
}

/** Caller in the audit log when a rotation verifies targets. */
const ROTATION_CALLER: Caller = { actor: "system", requestId: "rotation" };

export function createMatches(deps: MatchDependencies): MatchFinder {
  const { tables, audit, clock } = deps;
  const index = createMatchIndex(deps);
  const isServiceVaultName = (vaultName: string) => isServiceVault(deps.config, vaultName);

  /** Throws if no service vault is configured, because match records are signed with a key from that vault. */
  function requireServiceVault(): void {
    if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
  }

  async function requireApp(appId: string): Promise<MatchedApp> {
    const app = await deps.app(appId);
    if (!app) throw notFound(`The application ${appId}`);
    return app;
  }

  async function findMatches(app: MatchedApp) {
    const { candidates, coverage } = await findCandidates(app, {
      tables,
      index,
      isServiceVault: isServiceVaultName,
      log: deps.log,
    });
    const matches = candidates.flatMap(({ secret, context }) => evaluateMatch(secret, app, context) ?? []);
    return { matches: matches.sort((a, b) => (sortKeyOf(a) < sortKeyOf(b) ? -1 : 1)), coverage };
  }

  /** Returns the match as the list shows it now. */
  async function findMatch(app: MatchedApp, { vaultName, name }: ComparedSecret): Promise<Match | undefined> {
    const { matches } = await findMatches(app);
    return matches.find(({ secret }) => secret.vaultName === vaultName && secret.name === name);
  }

  /** Returns the secret that the caller names, with its vault. */
  async function requireSecret(id: string): Promise<{ secret: ComparedSecret; vault: VaultRecord }> {
    const place = secretPlace(id);
    if (place && isServiceVaultName(place.vaultName))
      throw new Problem("serviceVault", "The service's own key vault is never matched, read or written by a rotation.");
    const secret = place && (await readSecretRecord(tables, place.vaultName, place.name));
    const vault = secret && (await tables.get(Vaults, VAULTS, vaultKey(secret.vaultName)));
    if (!secret || !vault) throw notFound(`The secret ${id}`);
    return { secret, vault };
  }

  /**
   * Stores a test result, a confirmation or a rotation in the match record of an application and a secret. The pointer, from
   * the secret to the application, is written first, so that `credentialOf` finds all records of a secret.
   */
  async function storeStatement(
    app: Pick<MatchedApp, "appId">,
    secret: Pick<ComparedSecret, "vaultName" | "name">,
    change:
      | Pick<MatchRecord, "verified" | "refused">
      | Pick<MatchRecord, "confirmed" | "rejected">
      | Pick<MatchRecord, "rotated">,
  ) {
    const { vaultName, name: secretName } = secret;
    const pointer = pointerKey(vaultName, secretName, app.appId);
    await tables.put(MatchPointers, MATCHED_SECRETS, pointer, { appId: app.appId });
    const [partition, key] = [matchPartition(app.appId), matchKey(vaultName, secretName)];
    try {
      await tables.modify(MatchRows, partition, key, (stored) => ({
        ...(stored ? withoutKeys(stored) : { vaultName, secretName }),
        ...change,
      }));
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      // This service did not sign the stored row, so none of its members is used, and a new row replaces it.
      deps.log.error(error.message);
      await tables.put(MatchRows, partition, key, { vaultName, secretName, ...change });
    }
  }

  /**
   * Returns a user's rejection of the current version: as the vault lists it, or as the last scan found it if the vault denies
   * that. Undefined if its creation time is unknown.
   */
  async function rejectionOf(
    secret: ComparedSecret,
    vault: VaultRecord,
    caller: Caller,
  ): Promise<MatchRecord["rejected"]> {
    const newest = await failureIfDenied(readNewestVersion(vault, secret.name));
    const versionCreatedOn = (newest instanceof CloudFailure ? undefined : newest?.createdOn) ?? secret.createdOn;
    if (versionCreatedOn === undefined) return undefined;
    return { versionCreatedOn, at: clock.now().toISOString(), by: caller.actor, vaultId: vault.id };
  }

  /**
   * Tests the value of a secret and stores the result.
   *
   * @param expectedKeyId - Key ID of the expected credential. It decides if the hints of several credentials fit the value. A
   * hint is the first characters of a client secret, which the directory lists.
   */
  async function verifyAndStore(
    app: MatchedApp,
    secret: ComparedSecret,
    vault: VaultRecord,
    caller: Caller,
    expectedKeyId?: string,
  ): Promise<Proof> {
    const event = { type: "rotation.matchVerified", caller, ...auditTargetOf(app, secret) };
    const outcome = (proof: Proof) => ({ details: { ...event.details, result: proof.outcome } });
    const verifyOnce = async () => {
      const proof = await verifyMatch(app, secret.name, deps.vaults.open(vault), deps.proveSignIn);
      const { version, keyIds } = proof;
      const keyId = keyIds.length === 1 ? keyIds[0] : keyIds.find((one) => one === expectedKeyId);
      const statement = version && statementOf(vault, version, keyId, caller, clock.now());
      const hasSignedIn = proof.outcome === "accepted";
      const isWrong = proof.outcome === "refused" || proof.outcome === "otherHint";
      // Replaces both earlier results. `hint`: one hint fits, but the sign-in neither succeeded nor was rejected. If the value
      // could not be read, the earlier results stay.
      if (statement)
        await storeStatement(app, secret, {
          verified:
            hasSignedIn || (keyIds.length === 1 && !isWrong)
              ? { ...statement, kind: hasSignedIn ? "signIn" : "hint" }
              : undefined,
          refused: isWrong ? statement : undefined,
        });
      return proof;
    };
    return await audited(audit, event, verifyOnce, outcome);
  }

  const targetDeps = {
    ...deps,
    verify: (app: MatchedApp, secret: ComparedSecret, vault: VaultRecord, keyId: string | undefined) =>
      verifyAndStore(app, secret, vault, ROTATION_CALLER, keyId),
  };

  return {
    index,

    listMatches: async (appId) => await findMatches(await requireApp(appId)),

    async verify(appId, { assetId: id }, caller) {
      requireServiceVault();
      const app = await requireApp(appId);
      const { secret, vault } = await requireSecret(id);
      const { allowed, retryAfterSeconds } = await deps.limiter.take(app.appId.toLowerCase());
      if (!allowed) {
        const detail = `Each verification can cause a failed sign-in in the tenant's log, so an application is limited to ${PROOF_LIMITS.perHour} an hour. Try again later.`;
        throw retryLater("rateLimited", detail, retryAfterSeconds);
      }
      const proof = await verifyAndStore(app, secret, vault, caller);
      return { match: await findMatch(app, secret), proof };
    },

    async confirm(appId, { assetId: id, keyId, confirmed }, caller) {
      requireServiceVault();
      const app = await requireApp(appId);
      const { secret, vault } = await requireSecret(id);
      const credentialId = confirmed ? requireCredential(app, keyId) : undefined;
      const { target, details } = auditTargetOf(app, secret);
      const event = {
        type: "rotation.matchConfirmed",
        caller,
        target,
        details: { ...details, confirmed, credentialId },
      };
      await audited(audit, event, async () => {
        if (!confirmed) {
          const rejected = await rejectionOf(secret, vault, caller);
          return await storeStatement(app, secret, { confirmed: undefined, rejected });
        }
        const version = await readNewestVersion(vault, secret.name);
        if (!version) throw notFound(`The secret ${id}`);
        if (version.managed)
          throw new Problem(
            "conflict",
            "This secret belongs to a certificate and can't be written. Renew the certificate.",
          );
        await storeStatement(app, secret, {
          confirmed: statementOf(vault, version, credentialId, caller, clock.now()),
          rejected: undefined,
        });
      });
      return await findMatch(app, secret);
    },

    async targetsOf(app, keyId) {
      const key = app.passwords.find((one) => one.keyId.toLowerCase() === keyId.toLowerCase())?.keyId;
      if (key === undefined) return [];
      const { matches } = await findMatches(app);
      // A certain match without a key ID signed in with an unknown one of several secrets. It is a target of none of them.
      const isPossibleTarget = (match: Match) =>
        match.secret.enabled && (match.keyId === key || (match.keyId === undefined && match.confidence !== "certain"));
      const history = loadOnce(() => findWrittenPlaces(deps, app.appId));
      const targets = await pMap(
        matches.filter(isPossibleTarget),
        (match) => targetOf(targetDeps, app, match, history),
        {
          concurrency: PARALLEL,
        },
      );
      return targets.filter((target) => target !== undefined);
    },

    async recordWrittenPlaces(rotation) {
      const { rotationId, appId, newKeyId: keyId } = rotation;
      if (appId === undefined || keyId === undefined) return;
      const at = clock.now().toISOString();
      for (const publication of writtenMatches(rotation)) {
        const { vaultName, secretName: name, writtenVersion, writtenCreatedOn, vaultId } = publication;
        const rotated = {
          rotationId,
          keyId,
          version: writtenVersion!,
          at,
          ...(writtenCreatedOn !== undefined && { versionCreatedOn: writtenCreatedOn }),
          ...(vaultId !== undefined && { vaultId }),
        };
        await storeStatement({ appId }, { vaultName, name }, { rotated });
      }
    },

    async credentialOf({ vaultName, name }) {
      const secret = await readSecretRecord(tables, vaultName, name);
      if (!secret || isServiceVaultName(vaultName)) return undefined;
      for (const appId of await applicationIdsOf(secret)) {
        const app = await deps.app(appId);
        const match = app && (await findMatch(app, secret));
        if (match?.keyId === undefined || match.confidence !== "certain") continue;
        // Only the target's confidence matters here, not whether the place is known, so no earlier rotations are read.
        const target = await targetOf(targetDeps, app!, match, async () => new Map());
        if (target?.unanswered !== undefined) throw target.unanswered;
        if (target !== undefined && isCertain(target)) return { appId: app!.appId, keyId: match.keyId };
      }
      return undefined;
    },
  };

  /** Returns the IDs of applications that the secret's metadata names, and the client IDs of those with a match record. */
  async function applicationIdsOf(secret: ComparedSecret): Promise<Set<string>> {
    const appIds = new Set(claimsOf(secret).map(({ appId }) => appId));
    const prefix = pointerKey(secret.vaultName, secret.name, "");
    const range = { partitionKey: MATCHED_SECRETS, from: prefix, before: keyEnd(prefix) };
    const onCorrupt = (row: StorageCorrupt) => deps.log.error(row.message);
    for await (const rows of tables.pages(MatchPointers, { ...range, onCorrupt }))
      for (const { appId } of rows) appIds.add(appId.toLowerCase());
    return appIds;
  }

  async function readNewestVersion({ name: vaultName, vaultUri }: VaultRecord, secretName: string) {
    return await currentVersion(deps.vaults, { vaultName, vaultUri, secretName });
  }
}

const statementOf = (
  vault: VaultRecord,
  version: SecretVersion,
  keyId: string | undefined,
  caller: Caller,
  at: Date,
): Statement => ({
  ...(keyId !== undefined && { keyId }),
  version: version.version,
  // Without a creation time, any time in the inventory counts as that of a later version.
  versionCreatedOn: version.createdOn ?? 0,
  at: at.toISOString(),
  by: caller.actor,
  vaultId: vault.id,
});

export const noServiceVault = (): Problem =>
  new Problem(
    "conflict",
    "The records that decide where secrets are written are signed with a key in the service's own key vault. Set SERVICE_KEY_VAULT_URL.",
  );

/** Target and details of an audit entry. */
const auditTargetOf = (app: MatchedApp, secret: ComparedSecret) => ({
  target: { type: "application", id: app.appId },
  details: { assetId: assetId({ ...secret, type: "secret" }) },
});

/** Returns the key ID of the credential that a user confirms. @throws {Problem} invalidRequest if it is missing or unknown. */
function requireCredential(app: MatchedApp, keyId: string | undefined): string {
  const ids = app.passwords.map((one) => one.keyId);
  if (keyId === undefined && ids.length === 1) return ids[0]!;
  const keyIdOfApp = ids.find((one) => one.toLowerCase() === keyId?.toLowerCase());
  if (keyIdOfApp !== undefined) return keyIdOfApp;
  const secretsText = ids.length === 0 ? "it has none" : `it has ${ids.slice(0, 20).join(", ")}`;
  throw invalidBody("keyId", `must be the key id of one of the application's client secrets: ${secretsText}`);
}

const ORDER = { certain: 0, likely: 1, possible: 2 } as const;
/** Returns a sort key for matches: most certain first, then by asset ID. */
export const sortKeyOf = ({ confidence, secret }: Match): string =>
  `${ORDER[confidence]}!${assetId({ ...secret, type: "secret" })}`;
