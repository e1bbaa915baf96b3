import { type AssetLocation, Assets, credentialIds, locationsOf, sourceOf } from "../inventory/asset.ts";
import { nameKey, partitions } from "../inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { RotateAssetRequest } from "./asset-api.ts";
import { generateValue } from "./generate.ts";
import type { MatchFinder } from "./matches.ts";
import { namedPlaces } from "./named-places.ts";
import { type OnObstacle, remedies, throwObstacle } from "./obstacles.ts";
import { currentVersion } from "./plan-places.ts";
import { DEFAULT_OVERLAP_DAYS } from "./policy.ts";
import { throwAsProblem } from "./problems.ts";
import type { ClientSecretRequest, ResourceKeyRequest, RotationRequest } from "./request.ts";
import type { KeyLinkStore } from "./resource-keys/links.ts";
import type { Place } from "./targets.ts";

/** Rotation of a secret by its asset ID. */
export interface AssetRotation {
  /**
   * Returns the rotation request for an asset. If the asset is a client secret, or a vault secret whose match with a client
   * secret is `certain`, the request rotates the client secret. If the vault secret stores a key of an Azure resource and the body
   * has no new value, the request rotates that key. Otherwise it rotates the vault secret itself.
   *
   * @param onObstacle - Called with a problem that prevents the rotation: here `valueRequired`, if the request lacks the new
   * value. A dry run collects such problems. By default the problem is thrown.
   * @throws {Problem} notFound; notRotatable for a key, a certificate, or a secret that belongs to a certificate; serviceVault;
   * invalidRequest
   */
  requestFor(assetId: string, body: RotateAssetRequest, onObstacle?: OnObstacle): Promise<RotationRequest>;
}

export function createAssetRotation(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  vaults: VaultSecretsClients;
  matches: Pick<MatchFinder, "credentialOf">;
  keyLinks: Pick<KeyLinkStore, "resourceOf">;
  randomness: Randomness;
}): AssetRotation {
  const { tables, randomness } = deps;

  const isInInventory = async ({ vaultName, type, name }: AssetLocation): Promise<boolean> =>
    (await tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName))) !== undefined;

  /**
   * Returns the place of an existing asset.
   *
   * @throws {Problem} notFound, serviceVault
   */
  async function requireAsset(assetId: string): Promise<{ place: AssetLocation; vault: VaultRecord | undefined }> {
    // The ID of an application's credential does not say whether it is a secret or a certificate. `locationsOf` returns both
    // possibilities, and at most one of them is in the inventory.
    for (const place of locationsOf(assetId)) {
      const { vaultName } = place;
      if (isServiceVault(deps.config, vaultName)) {
        throw new Problem("serviceVault", `${vaultName} is the service's own key vault, which is never rotated.`);
      }
      const vault = await tables.get(Vaults, VAULTS, vaultKey(vaultName));
      if (await isInInventory(place)) return { place, vault };
      if (place.type === "secret" && vault !== undefined && credentialIds(place.name) === undefined) {
        // The inventory does not list the secret that belongs to a certificate, only the certificate.
        if (await isInInventory({ ...place, type: "certificate" })) return { place, vault };
      }
    }
    throw notFound(`The asset ${assetId}`);
  }

  async function requestForVaultSecret(
    place: AssetLocation,
    vault: VaultRecord,
    body: RotateAssetRequest,
    onObstacle: OnObstacle,
  ): Promise<RotationRequest> {
    const secret = { vaultName: vault.name, vaultUri: vault.vaultUri, secretName: place.name };
    const current = await currentVersion(deps.vaults, secret).catch(throwAsProblem);
    if (current === undefined) throw notFound(`The secret ${place.name} of ${vault.name}`);
    if (current.managed) throw notRotatable(`${place.name} belongs to a certificate: renew the certificate.`);
    const credential = await deps.matches.credentialOf(place).catch(throwAsProblem);
    if (credential !== undefined) return requestForClientSecret(credential, body, secret);
    // With a new value from the request, the vault secret itself is rotated, whatever it stores.
    if (body.newValue === undefined && body.generate === undefined) {
      const key = await deps.keyLinks.resourceOf(secret, current.tags).catch(throwAsProblem);
      if (key !== undefined) return requestForResourceKey(key.resourceId, body, secret);
    }
    if (body.targets !== undefined) {
      throw invalidBody("targets", "can't be given: this secret is no application's client secret and has one place");
    }
    return {
      secret,
      value: newValueOf(body, onObstacle),
      reason: body.reason,
      expiryDays: body.expiryDays,
      // The previous version of a vault secret stays readable, so nothing must wait before it ends.
      overlapDays: body.overlapDays ?? 0,
      ...consumerOptions(body),
    };
  }

  /** Returns the new value, or an empty text if it is missing and `onObstacle` returns: a plan does not use the value. */
  function newValueOf({ newValue, generate, issuerAccepts }: RotateAssetRequest, onObstacle: OnObstacle): string {
    if (newValue !== undefined && generate !== undefined)
      throw invalidBody("generate", "can't be combined with newValue");
    if (newValue !== undefined) return newValue;
    if (generate !== undefined && issuerAccepts) return generateValue(generate, randomness);
    onObstacle(
      new Problem(
        "valueRequired",
        generate === undefined
          ? "This secret is not known to be an application's client secret, so Entra can't create its new value. Enter the new value (newValue). Or generate a random value (generate with issuerAccepts: true), if no other system must know the value first. If it is a client secret, test or confirm the match of the application."
          : "Send issuerAccepts: true together with generate: a generated value is useless if the system that checks it does not accept any value. Otherwise send newValue.",
        generate === undefined
          ? remedies({ newValue: null }, { generate: GENERATED, issuerAccepts: true })
          : remedies({ issuerAccepts: true }),
      ),
    );
    return "";
  }

  return {
    async requestFor(assetId, body, onObstacle = throwObstacle) {
      const { place, vault } = await requireAsset(assetId);
      if (place.type !== "secret") {
        throw notRotatable(
          `${assetId} is a ${place.type}. Rotate keys with the vault's key rotation policy, and renew certificates in the vault.`,
        );
      }
      // Undefined unless the name is that of a client secret's asset, which consists of the client ID and the key ID.
      const credential = credentialIds(place.name);
      const asset = await tables.get(
        Assets,
        partitions.vault(place.vaultName),
        nameKey("secret", place.name, place.vaultName),
      );
      if (asset !== undefined && sourceOf(asset) !== "keyVault") {
        if (sourceOf(asset) !== "entra" || credential === undefined || asset.credential?.of !== "application") {
          throw notRotatable(`${assetId} is not the client secret of an application of this tenant.`);
        }
        return requestForClientSecret(credential, body);
      }
      // The vault's row was deleted, the rows of its assets were not yet.
      if (vault === undefined) throw notFound(`The vault ${place.vaultName}`);
      return await requestForVaultSecret(place, vault, body, onObstacle);
    },
  };
}

/** The generated value that a problem proposes: 190 bits of entropy, in characters that every system accepts. */
const GENERATED = { length: 32, alphabet: "alphanumeric" };

/**
 * Returns the request that rotates an application's client secret.
 *
 * @param requestedPlace - The vault secret whose ID was given. Undefined if the ID is that of the client secret itself.
 */
function requestForClientSecret(
  { appId, keyId }: { appId: string; keyId: string },
  body: RotateAssetRequest,
  requestedPlace?: Place,
): ClientSecretRequest {
  for (const member of ["newValue", "generate"] as const) {
    if (body[member] !== undefined) {
      throw invalidBody(member, "can't be given: this is a client secret of an application, whose value Entra creates");
    }
  }
  return {
    appId,
    secretId: keyId,
    reason: body.reason,
    requestedPlace,
    targets: targetsOf(body, requestedPlace),
    expiryDays: body.expiryDays,
    updateKeyVaults: true,
    overlapDays: body.overlapDays ?? DEFAULT_OVERLAP_DAYS,
    removeExpired: body.removeExpired,
    ...consumerOptions(body),
  };
}

/** Returns the only places that the rotation may write. Undefined if the request does not limit them. */
function targetsOf({ targets, reason }: RotateAssetRequest, requestedPlace: Place | undefined): Place[] | undefined {
  const named = namedPlaces(targets);
  // A compromised secret is written only to named places, so the ID in the request then counts as the only named one.
  const isLimited = named !== undefined || (reason === "compromised" && requestedPlace !== undefined);
  return isLimited ? [...(named ?? []), ...(requestedPlace === undefined ? [] : [requestedPlace])] : undefined;
}

/** Returns the request that rotates the key of a resource that a vault secret stores. */
const requestForResourceKey = (
  resourceId: string,
  body: RotateAssetRequest,
  requestedPlace: Place,
): ResourceKeyRequest => ({
  issuer: "resourceKey",
  resourceId,
  reason: body.reason,
  requestedPlace,
  targets: targetsOf(body, requestedPlace),
  expiryDays: body.expiryDays,
  overlapDays: body.overlapDays ?? DEFAULT_OVERLAP_DAYS,
  regenerateOld: false,
  acceptUnread: body.acceptUnread,
  ...consumerOptions(body),
});

const consumerOptions = ({ includeResources, skipVerification, restartApps }: RotateAssetRequest) => ({
  includeResources,
  skipVerification,
  restartApps,
});

const notRotatable = (detail: string): Problem => new Problem("notRotatable", detail);
