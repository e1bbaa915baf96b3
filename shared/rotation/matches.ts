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
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
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
import { candidatesOf, secretOf, secretPlace } from "./match-candidates.ts";
import { claimsOf, evaluateMatch } from "./match-evidence.ts";
import { createMatchIndex, type MatchIndex } from "./match-index.ts";
import { PROOF_LIMITS, type Proof, readable, verifyMatch } from "./match-verification.ts";
import { currentVersion } from "./plan.ts";
import { signInUnclear } from "./problems.ts";
import { isCertain, type Matches, placeKey, type Target } from "./targets.ts";
import { findWrittenPlaces, writtenMatches } from "./written-places.ts";

/** Number of vaults that are read concurrently for the targets of a rotation. */
const PARALLEL = 4;

/** Finds and verifies the matches: which vault secrets store which credentials of applications. */
export interface MatchFinder extends Matches {
  /** For the timer that updates the index. */
  readonly index: MatchIndex;
  /**
   * Returns the matches of an application by metadata alone, most certain first, and sentences about what was not searched.
   *
   * @throws {Problem} notFound for an unknown application.
   */
  of(appId: string): Promise<{ matches: Match[]; coverage: string[] }>;
  /**
   * Reads the newest version of one secret, compares its start with the hints, and signs in with it once. Stores the result
   * with the version, not the value.
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
   * Stores or withdraws a user's confirmation that the current version of a secret stores a credential.
   *
   * @throws {Problem} notFound; serviceVault; conflict; invalidRequest for a credential that the application does not have.
   */
  confirm(
    appId: string,
    word: { assetId: string; keyId?: string | undefined; confirmed: boolean },
    caller: Caller,
  ): Promise<Match | undefined>;
  /**
   * Returns the secrets that store, or may store, one credential now. Anyone with write access to a vault can write tags and
   * content types, so a target is `certain` only if a user confirmed its current version or the version signed in as the
   * application. Versions without a result are read and tested once. `standing` helps to decide which targets a rotation
   * writes.
   *
   * @throws {CloudFailure} transient, including an unclear sign-in. No target is left out because it could not be read.
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
const SYSTEM: Caller = { actor: "system", requestId: "rotation" };

export function createMatches(deps: MatchDependencies): MatchFinder {
  const { tables, audit, clock } = deps;
  const index = createMatchIndex(deps);
  const isOwn = (vaultName: string) => isServiceVault(deps.config, vaultName);

  /** Match records are signed with a key from the service's own key vault. */
  function requireOwnVault(): void {
    if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
  }

  async function requireApp(appId: string): Promise<MatchedApp> {
    const app = await deps.app(appId);
    if (!app) throw notFound(`The application ${appId}`);
    return app;
  }

  async function find(app: MatchedApp) {
    const { candidates, coverage } = await candidatesOf(app, { tables, index, isServiceVault: isOwn, log: deps.log });
    const matches = candidates.flatMap(({ secret, beside }) => evaluateMatch(secret, app, beside) ?? []);
    return { matches: matches.sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1)), coverage };
  }

  /** Returns the match as the list shows it now. */
  async function matchOf(app: MatchedApp, { vaultName, name }: ComparedSecret): Promise<Match | undefined> {
    const { matches } = await find(app);
    return matches.find(({ secret }) => secret.vaultName === vaultName && secret.name === name);
  }

  /** Returns the secret that the caller names, with its vault. */
  async function requireSecret(id: string): Promise<{ secret: ComparedSecret; vault: VaultRecord }> {
    const place = secretPlace(id);
    if (place && isOwn(place.vaultName))
      throw new Problem("serviceVault", "The service's own key vault is never matched, read or written by a rotation.");
    const secret = place && (await secretOf(tables, place.vaultName, place.name));
    const vault = secret && (await tables.get(Vaults, VAULTS, vaultKey(secret.vaultName)));
    if (!secret || !vault) throw notFound(`The secret ${id}`);
    return { secret, vault };
  }

  const recordOf = (app: MatchedApp, { vaultName, name }: ComparedSecret) =>
    tables.get(MatchRows, matchPartition(app.appId), matchKey(vaultName, name));

  async function storeStatement(
    app: Pick<MatchedApp, "appId">,
    secret: Pick<ComparedSecret, "vaultName" | "name">,
    words: Pick<MatchRecord, "verified" | "refused"> | Pick<MatchRecord, "confirmed"> | Pick<MatchRecord, "rotated">,
  ) {
    const { vaultName, name: secretName } = secret;
    const pointer = pointerKey(vaultName, secretName, app.appId);
    await tables.put(MatchPointers, MATCHED_SECRETS, pointer, { appId: app.appId });
    await tables.modify(MatchRows, matchPartition(app.appId), matchKey(vaultName, secretName), (now) => ({
      ...(now ? withoutKeys(now) : { vaultName, secretName }),
      ...words,
    }));
  }

  const statementOf = (
    vault: VaultRecord,
    version: SecretVersion,
    keyId: string | undefined,
    caller: Caller,
  ): Statement => ({
    ...(keyId !== undefined && { keyId }),
    version: version.version,
    versionCreatedOn: version.createdOn ?? 0,
    at: clock.now().toISOString(),
    by: caller.actor,
    vaultId: vault.id,
  });

  /** @param claimed - The credential that the secret's metadata names. It decides if several have the same hint. */
  async function verifyAndStore(
    app: MatchedApp,
    secret: ComparedSecret,
    vault: VaultRecord,
    caller: Caller,
    claimed?: string,
  ): Promise<Proof> {
    const event = { type: "rotation.matchVerified", caller, ...about(app, secret) };
    const outcome = (proof: Proof) => ({ details: { ...event.details, result: proof.outcome } });
    const tried = async () => {
      const proof = await verifyMatch(app, secret.name, deps.vaults.open(vault), deps.proveSignIn);
      const { version, keyIds } = proof;
      const keyId = keyIds.length === 1 ? keyIds[0] : keyIds.find((one) => one === claimed);
      const word = version && statementOf(vault, version, keyId, caller);
      const signedIn = proof.outcome === "accepted";
      const wrong = proof.outcome === "refused" || proof.outcome === "otherHint";
      // If the value could not be tested, the earlier results stay.
      if (word)
        await storeStatement(app, secret, {
          verified:
            signedIn || (keyIds.length === 1 && !wrong) ? { ...word, kind: signedIn ? "signIn" : "hint" } : undefined,
          refused: wrong ? word : undefined,
        });
      return proof;
    };
    return await audited(audit, event, tried, outcome);
  }

  return {
    index,

    of: async (appId) => await find(await requireApp(appId)),

    async verify(appId, { assetId: id }, caller) {
      requireOwnVault();
      const app = await requireApp(appId);
      const { secret, vault } = await requireSecret(id);
      const { allowed, retryAfterSeconds } = await deps.limiter.take(app.appId.toLowerCase());
      if (!allowed) {
        const detail = `Each verification can cause a failed sign-in in the tenant's log, so an application is limited to ${PROOF_LIMITS.perHour} an hour. Try again later.`;
        throw retryLater("rateLimited", detail, retryAfterSeconds);
      }
      const proof = await verifyAndStore(app, secret, vault, caller);
      return { match: await matchOf(app, secret), proof };
    },

    async confirm(appId, { assetId: id, keyId, confirmed }, caller) {
      requireOwnVault();
      const app = await requireApp(appId);
      const { secret, vault } = await requireSecret(id);
      const credentialId = confirmed ? credentialOf(app, keyId) : undefined;
      const { target, details } = about(app, secret);
      const event = {
        type: "rotation.matchConfirmed",
        caller,
        target,
        details: { ...details, confirmed, credentialId },
      };
      await audited(audit, event, async () => {
        if (!confirmed) return await storeStatement(app, secret, { confirmed: undefined });
        const version = await newestOf(vault, secret.name);
        if (!version) throw notFound(`The secret ${id}`);
        if (version.managed)
          throw new Problem(
            "conflict",
            "This secret belongs to a certificate and can't be written. Renew the certificate.",
          );
        await storeStatement(app, secret, { confirmed: statementOf(vault, version, credentialId, caller) });
      });
      return await matchOf(app, secret);
    },

    async targetsOf(app, keyId) {
      const key = app.passwords.find((one) => one.keyId.toLowerCase() === keyId.toLowerCase())?.keyId;
      if (key === undefined) return [];
      const { matches } = await find(app);
      const fits = (match: Match) =>
        match.secret.enabled && (match.keyId === key || (match.keyId === undefined && match.confidence !== "certain"));
      const history = loadOnce(() => findWrittenPlaces(deps, app.appId));
      const targets = await pMap(matches.filter(fits), (match) => targetOf(app, match, history), {
        concurrency: PARALLEL,
      });
      return targets.filter((target) => target !== undefined);
    },

    async keepWritten(rotation) {
      const { rotationId, appId, newKeyId: keyId } = rotation;
      if (appId === undefined || keyId === undefined) return;
      const at = clock.now().toISOString();
      for (const { vaultName, secretName: name, writtenVersion, vaultId } of writtenMatches(rotation)) {
        const rotated = { rotationId, keyId, version: writtenVersion!, at, ...(vaultId !== undefined && { vaultId }) };
        await storeStatement({ appId }, { vaultName, name }, { rotated });
      }
    },

    async credentialOf({ vaultName, name }) {
      const secret = await secretOf(tables, vaultName, name);
      if (!secret || isOwn(vaultName)) return undefined;
      for (const appId of await namedApps(secret)) {
        const app = await deps.app(appId);
        const match = app && (await matchOf(app, secret));
        if (match?.keyId === undefined || match.confidence !== "certain") continue;
        const target = await targetOf(app!, match, async () => new Map());
        if (target !== undefined && isCertain(target)) return { appId: app!.appId, keyId: match.keyId };
      }
      return undefined;
    },
  };

  /** Returns the client IDs that the secret's metadata names, and those with a match record. */
  async function namedApps(secret: ComparedSecret): Promise<Set<string>> {
    const appIds = new Set(claimsOf(secret).map(({ appId }) => appId));
    const prefix = pointerKey(secret.vaultName, secret.name, "");
    const range = { partitionKey: MATCHED_SECRETS, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(MatchPointers, range))
      for (const { appId } of rows) appIds.add(appId.toLowerCase());
    return appIds;
  }

  async function newestOf({ name: vaultName, vaultUri }: VaultRecord, secretName: string) {
    return await currentVersion(deps.vaults, { vaultName, vaultUri, secretName });
  }

  /**
   * Returns the target of a match; undefined if the vault or the secret is gone, disabled, or belongs to a certificate.
   *
   * @param history - See `writtenBefore`. Called only if needed.
   * @throws {CloudFailure} if the failure is transient.
   */
  async function targetOf(
    app: MatchedApp,
    match: Match,
    history: () => Promise<ReadonlyMap<string, string | undefined>>,
  ): Promise<Target | undefined> {
    const { secret, keyId, confidence } = match;
    const vault = await tables.get(Vaults, VAULTS, vaultKey(secret.vaultName));
    if (!vault) return undefined;
    const { name: vaultName, vaultUri, id: vaultId } = vault;
    const doubtful: Target = {
      vaultName,
      vaultUri,
      vaultId,
      secretName: secret.name,
      confidence: confidence === "certain" ? "likely" : confidence,
      standing: "new",
    };
    if (confidence !== "certain") return doubtful;
    const newest = await readable(newestOf(vault, secret.name));
    if (newest instanceof CloudFailure) return { ...doubtful, unreadable: true };
    if (!newest?.enabled || newest.managed) return undefined;
    const certain = { ...doubtful, confidence, heldSince: newest.createdOn };
    const record = await recordOf(app, secret);
    const isHere = (id: string | undefined) => id === undefined || id.toLowerCase() === vaultId.toLowerCase();
    const stands = (word: Statement | undefined) =>
      word?.version === newest.version && word.keyId === keyId && isHere(word.vaultId);
    if (stands(record?.confirmed)) return { ...certain, standing: "confirmed" };
    if (!(record?.verified?.kind === "signIn" && stands(record.verified))) {
      // A rotation asks repeatedly, so a wrong value is tested at most once a day.
      const refused = record?.refused;
      if (refused?.version === newest.version && clock.now().getTime() - Date.parse(refused.at) < DAY_MS)
        return { ...doubtful, confidence: "possible" };
      const { outcome, keyIds } = await verifyAndStore(app, secret, vault, SYSTEM, keyId);
      if (outcome === "unclear") throw signInUnclear(app.appId);
      if (outcome === "refused" || outcome === "otherHint") return { ...doubtful, confidence: "possible" };
      if (outcome === "unreadable") return { ...doubtful, unreadable: true };
      if (outcome !== "accepted" || keyId === undefined || !keyIds.includes(keyId)) return doubtful;
    }
    return { ...certain, standing: (await wasRotated()) ? "rotated" : "new" };

    async function wasRotated(): Promise<boolean> {
      if (record?.rotated !== undefined) return isHere(record.rotated.vaultId);
      const before = await history();
      const key = placeKey({ vaultName, secretName: secret.name });
      return before.has(key) && isHere(before.get(key));
    }
  }
}

export const noServiceVault = (): Problem =>
  new Problem(
    "conflict",
    "The records that decide where secrets are written are signed with a key in the service's own key vault. Set SERVICE_KEY_VAULT_URL.",
  );

/** Target and details of an audit entry. */
const about = (app: MatchedApp, secret: ComparedSecret) => ({
  target: { type: "application", id: app.appId },
  details: { assetId: assetId({ ...secret, type: "secret" }) },
});

/** Returns the key ID of the credential that a user confirms. */
function credentialOf(app: MatchedApp, keyId: string | undefined): string {
  const ids = app.passwords.map((one) => one.keyId);
  if (keyId === undefined && ids.length === 1) return ids[0]!;
  const found = ids.find((one) => one.toLowerCase() === keyId?.toLowerCase());
  if (found !== undefined) return found;
  const has = ids.length === 0 ? "it has none" : `it has ${ids.slice(0, 20).join(", ")}`;
  throw invalidBody("keyId", `must be the key id of one of the application's client secrets: ${has}`);
}

const ORDER = { certain: 0, likely: 1, possible: 2 } as const;
/** Returns a sort key for matches: most certain first, then by asset ID. */
export const orderOf = ({ confidence, secret }: Match): string =>
  `${ORDER[confidence]}!${assetId({ ...secret, type: "secret" })}`;
