import type { PlacesRequest } from "./choose-places.ts";
import type { ConsumersRequest } from "./plan-consumers.ts";
import type { RotationRecord } from "./rotation.ts";
import type { Target } from "./targets.ts";

// Requests of rotations, and the plans that are made of them.

/** Request to replace a client secret of an application. */
export interface ClientSecretRequest extends ConsumersRequest, Omit<PlacesRequest, "automatic"> {
  issuer?: "clientSecret";
  /** Client ID. */
  appId: string;
  /** The keyId of the client secret to replace. */
  secretId: string;
  /** 1 to 730. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** False: the new value is stored in the vault that `HANDOVER_KEY_VAULT_URL` names. */
  updateKeyVaults: boolean;
  /** Days during which both secrets are valid, 0 to 90. */
  overlapDays: number;
  /** Whether an expired client secret may be removed if the application has no free slot. */
  removeExpired: boolean;
}

/** Request to replace the key of an Azure resource that key vault secrets store. The resource's other key is regenerated. */
export interface ResourceKeyRequest extends ConsumersRequest, Omit<PlacesRequest, "automatic"> {
  issuer: "resourceKey";
  resourceId: string;
  /** Name of a key of the pair to rotate, if the resource has several pairs. Default: the pair that the places store. */
  pair?: string | undefined;
  /** Days after which the new versions expire. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** Days until the end of the rotation, 0 to 90. Until then it can be rolled back. */
  overlapDays: number;
  /** Whether to regenerate the old key after the overlap period too. */
  regenerateOld: boolean;
  /** Whether the user accepts that vault secrets which no discovery read may store the key that is regenerated. */
  acceptUnread: boolean;
}

/** Request to replace the login of a database in all registered secrets. The other user of its pair gets a new password. */
export interface DatabaseLoginRequest extends ConsumersRequest {
  issuer: "databaseLogin";
  /** ID of the registration. */
  loginId: string;
  reason?: RotationRecord["reason"];
  /** Days after which the new versions expire. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** Days until the old user gets an unknown password, 0 to 90. Until then the rotation can be rolled back. */
  overlapDays: number;
}

/** Request to write a new value to a vault secret that is not an application's client secret. */
export interface VaultSecretRequest extends ConsumersRequest {
  secret: Pick<Target, "vaultName" | "vaultUri" | "secretName">;
  value: string;
  reason?: RotationRecord["reason"];
  /** Days until the new version expires. Default: the setting `defaultValidityDays`. */
  expiryDays?: number | undefined;
  /** Days during which the rotation can still be cancelled after its consumers have the new value. */
  overlapDays: number;
}

/** Request to replace a credential that an issuer creates. */
export type CredentialRequest = ClientSecretRequest | ResourceKeyRequest | DatabaseLoginRequest;

export type RotationRequest = CredentialRequest | VaultSecretRequest;

/** A request with its defaults filled in. */
export type PlanRequest<T extends RotationRequest> = T & { expiryDays: number; automatic: boolean };

/** What a policy decides about a rotation that it starts. */
export type AutomaticStart = Partial<Pick<RotationRecord, "maintenanceWindow" | "oldExpiresAt" | "notes">>;

/** The parts of a rotation record that a plan decides. */
export type RotationPlan = Pick<
  RotationRecord,
  | "appId"
  | "objectId"
  | "appName"
  | "oldKeyId"
  | "assetId"
  | "issuer"
  | "resourceId"
  | "keyKind"
  | "loginId"
  | "login"
  | "regenerateOld"
  | "newExpiresAt"
  | "oldHint"
  | "expiryDays"
  | "overlapDays"
  | "updateKeyVaults"
  | "reason"
  | "namedOnly"
  | "knownKeyIds"
  | "removeExpired"
  | "publications"
  | "consumers"
  | "skipVerification"
  | "restartApps"
  | "notUpdated"
  | "notes"
  | "coverage"
>;

/** A plan without the consumers of its places. */
export type PlanWithoutConsumers = Omit<RotationPlan, "consumers" | "coverage">;
