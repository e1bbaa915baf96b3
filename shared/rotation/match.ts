import * as z from "zod";
import type { AssetRecord } from "../inventory/asset.ts";
import type { PasswordCredential } from "../platform/azure/graph.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";

export const CONFIDENCES = ["certain", "likely", "possible"] as const;
export type Confidence = (typeof CONFIDENCES)[number];

/** Why a vault's secret is thought to hold a credential; what each means to people is in `EVIDENCE_WORDS`. */
export const EVIDENCE = [
  "tag",
  "contentType",
  "confirmed",
  "signIn",
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

export const EVIDENCE_WORDS: Record<Evidence, string> = {
  tag: "its tags name this application and the credential",
  contentType: "its content type is `<name>:<client id>:<key id>` of this application and the credential",
  confirmed: "a person said so of the version that it has now",
  signIn: "its value signed in as this application",
  hint: "its value begins with the credential's hint",
  appIdTag: "a tag, the content type or the name holds the application's client id or object id",
  companion: "a secret beside it, `<prefix>-client-id`, names this application",
  expiry: "it expires within 24 hours of the credential, and no other secret does",
  expirySameDay: "it expires within 24 hours of the credential, as others do",
  createdTogether: "it was made within ten minutes of the credential",
  name: "its name is the application's, but for words such as `client-secret`",
  conflict: "its tags and its content type name different credentials",
};

export const VERIFIED = ["none", "hint", "signIn"] as const;
export type Verified = (typeof VERIFIED)[number];

/** The application as far as matching needs it. */
export interface MatchedApp {
  /** The client id. */
  appId: string;
  /** The directory object's id. */
  objectId: string;
  displayName: string;
  passwords: readonly PasswordCredential[];
}

/** What is compared of a secret: all of it comes from the inventory. */
export const COMPARED = [
  "name",
  "vaultName",
  "enabled",
  "createdOn",
  "expiresOn",
  "contentType",
  "tags",
  "source",
] as const satisfies (keyof AssetRecord)[];
export type ComparedSecret = Pick<AssetRecord, (typeof COMPARED)[number]>;

/** A vault's secret that may hold a credential of an application. */
export interface Match {
  secret: ComparedSecret;
  confidence: Confidence;
  /** The strongest first. */
  evidence: Evidence[];
  /** The credential it is thought to hold; undefined where the application has several and nothing tells which. */
  keyId: string | undefined;
  verified: Verified;
  /** A person confirmed it, or a rotation wrote it. */
  isKnown: boolean;
  /** The version that was last read or confirmed, where it still is the newest that the inventory knows of. */
  version: string | undefined;
}

const Word = z.object({
  /** Undefined where a sign-in proved the application but nothing told which of its secrets it was. */
  keyId: z.string().optional(),
  version: z.string(),
  /** Unix seconds: when that version was made. What the inventory lists with a later one is another version. */
  versionCreatedOn: z.int(),
  at: z.string(),
  by: z.string(),
  /** The vault's resource id. Absent where an earlier version wrote it: then it holds for any vault of the name. */
  vaultId: z.string().optional(),
});
export type Word = z.infer<typeof Word>;

/** What was proved and said of one secret and one application. */
export const MatchRecord = z.object({
  vaultName: z.string(),
  secretName: z.string(),
  verified: Word.extend({ kind: z.enum(["hint", "signIn"]) }).optional(),
  /** It was tried and is no working secret of the application. */
  refused: Word.optional(),
  confirmed: Word.optional(),
  /** The last completed rotation that wrote it. */
  rotated: z
    .object({
      rotationId: z.string(),
      /** The client secret that it was given. */
      keyId: z.string(),
      version: z.string(),
      at: z.string(),
      /** As in `Word`. */
      vaultId: z.string().optional(),
    })
    .optional(),
});
export type MatchRecord = z.infer<typeof MatchRecord>;

/** A partition per application, by its client id. */
export const MatchRows = entity("RotationMatches", MatchRecord, { signed: true });
export const matchPartition = (appId: string): string => `app:${appId.toLowerCase()}`;
export const matchKey = (vaultName: string, secretName: string): string =>
  `${keyText(vaultName.toLowerCase())}|${keyText(secretName.toLowerCase())}`;

/** Leads from a vault's secret to an application of which something was proved or said about it. Nothing rests on it alone. */
export const MatchPointers = entity("RotationMatches", z.object({ appId: z.string() }));
export const MATCHED_SECRETS = "secrets";
export const pointerKey = (vaultName: string, secretName: string, appId: string): string =>
  `${matchKey(vaultName, secretName)}|${appId.toLowerCase()}`;
