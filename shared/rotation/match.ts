import * as z from "zod";
import type { AssetRecord } from "../inventory/asset.ts";
import type { PasswordCredential } from "../platform/azure/graph.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";

export const CONFIDENCES = ["certain", "likely", "possible"] as const;
export type Confidence = (typeof CONFIDENCES)[number];

/** Kinds of evidence that a vault secret stores a credential. `EVIDENCE_TEXTS` describes each for users. */
export const EVIDENCE = [
  "tag",
  "contentType",
  "confirmed",
  "signIn",
  "rotated",
  "hint",
  "appIdTag",
  "companion",
  "expiry",
  "expirySameDay",
  "createdTogether",
  "name",
  "conflict",
] as const;
export type Evidence = (typeof EVIDENCE)[number];

export const EVIDENCE_TEXTS: Record<Evidence, string> = {
  tag: "its tags name this application and the credential",
  contentType: "its content type is `<name>:<client id>:<key id>` of this application and the credential",
  confirmed: "a user confirmed it for the current version",
  signIn: "its value signed in as this application",
  rotated: "the last completed rotation wrote the credential to it, and no later version is known",
  hint: "its value begins with the credential's hint",
  appIdTag: "a tag, the content type or the name holds the application's client id or object id",
  companion: "a secret beside it, `<prefix>-client-id`, names this application",
  expiry: "it expires within 24 hours of the credential, and no other secret does",
  expirySameDay: "it expires within 24 hours of the credential, as others do",
  createdTogether: "it was created within ten minutes of the credential",
  name: "its name is that of the application, apart from words such as `client-secret`",
  conflict: "its tags and its content type name different credentials",
};

/** What a test of the value proved. `hint`: the value starts with the credential's hint, its first characters in the directory. */
export const VERIFIED = ["none", "hint", "signIn"] as const;
export type Verified = (typeof VERIFIED)[number];

/** The properties of an application that matching needs. */
export interface MatchedApp {
  /** The client id. */
  appId: string;
  /** Object ID in the directory. */
  objectId: string;
  displayName: string;
  passwords: readonly PasswordCredential[];
}

/** Columns of the inventory that matching reads. */
export const COMPARED_COLUMNS = [
  "name",
  "vaultName",
  "enabled",
  "createdOn",
  "expiresOn",
  "contentType",
  "tags",
  "source",
] as const satisfies (keyof AssetRecord)[];
export type ComparedSecret = Pick<AssetRecord, (typeof COMPARED_COLUMNS)[number]>;

/** A vault secret that may store a credential of an application. */
export interface Match {
  secret: ComparedSecret;
  confidence: Confidence;
  /** Strongest first. */
  evidence: Evidence[];
  /**
   * The credential that the secret probably stores. Undefined if the application has several and the evidence does not decide.
   */
  keyId: string | undefined;
  verified: Verified;
  /** True if a user confirmed the match, or a rotation wrote the secret. */
  isKnown: boolean;
  /** The version that was last verified or confirmed, if it is the newest in the inventory. */
  version: string | undefined;
}

/** Result of a verification, or a user's confirmation, for one version of a secret. */
const Statement = z.object({
  /** Undefined if a sign-in proved the application but not which of its secrets was used. */
  keyId: z.string().optional(),
  version: z.string(),
  /** Creation time of that version in Unix seconds. A later time in the inventory means another version. */
  versionCreatedOn: z.int(),
  at: z.string(),
  by: z.string(),
  /** Resource ID of the vault. Absent in rows of earlier releases, which apply to any vault of the name. */
  vaultId: z.string().optional(),
});
export type Statement = z.infer<typeof Statement>;

/** The verifications and the confirmation of one secret for one application. */
export const MatchRecord = z.object({
  vaultName: z.string(),
  secretName: z.string(),
  verified: Statement.extend({ kind: z.enum(["hint", "signIn"]) }).optional(),
  /** The value was tested and is no working secret of the application. */
  refused: Statement.optional(),
  confirmed: Statement.optional(),
  /**
   * A user's statement that the version stores no credential of the application. Metadata of the secret alone then no longer
   * stops a rotation. Has no `version`, because a vault that denies access does not say which version is current.
   */
  rejected: Statement.omit({ keyId: true, version: true }).optional(),
  /** The last completed rotation that wrote the secret. */
  rotated: z
    .object({
      rotationId: z.string(),
      /** The client secret that was written. */
      keyId: z.string(),
      version: z.string(),
      /** Creation time of that version in Unix seconds. Absent in rows of earlier releases. */
      versionCreatedOn: z.int().optional(),
      /** When the rotation was completed. */
      at: z.string(),
      /** Resource ID of the vault, as in `Statement`. */
      vaultId: z.string().optional(),
    })
    .optional(),
});
export type MatchRecord = z.infer<typeof MatchRecord>;

/** Match records, in one partition per application. */
export const MatchRows = entity("RotationMatches", MatchRecord, { signed: true });
export const matchPartition = (appId: string): string => `app:${appId.toLowerCase()}`;
export const matchKey = (vaultName: string, secretName: string): string =>
  `${keyText(vaultName.toLowerCase())}|${keyText(secretName.toLowerCase())}`;

/** Index of the applications for which a vault secret has a match record. It can be outdated: the match record decides. */
export const MatchPointers = entity("RotationMatches", z.object({ appId: z.string() }));
export const MATCHED_SECRETS = "secrets";
export const pointerKey = (vaultName: string, secretName: string, appId: string): string =>
  `${matchKey(vaultName, secretName)}|${appId.toLowerCase()}`;
