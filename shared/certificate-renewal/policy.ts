import * as z from "zod";
import { CERTIFICATE_KEY_TYPES, KEY_CURVES } from "../platform/azure/vault-certificates.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { TABLE } from "./authority.ts";

/** How a certificate is renewed. By the asset ID of the certificate. */
export const POLICIES = "policies";

export const RENEWAL_TRIGGERS = ["renewalInformation", "lifetimeShare"] as const;

/** The key pair of new versions. */
export const KeySpec = z.object({
  keyType: z.enum(CERTIFICATE_KEY_TYPES),
  keySize: z.int().optional(),
  keyCurve: z.enum(KEY_CURVES).optional(),
  reuseKey: z.boolean(),
});
export type KeySpec = z.infer<typeof KeySpec>;

export const RenewalPolicy = z.object({
  assetId: z.string(),
  vaultName: z.string(),
  /** Resource ID. After this vault is deleted, another one may get its name. */
  vaultId: z.string(),
  certificate: z.string(),
  /** Absent: the vault's policy creates the version, by a connected authority or self-signed. */
  authorityId: z.string().optional(),
  automatic: z.boolean(),
  trigger: z.enum(RENEWAL_TRIGGERS),
  /** Percent of the lifetime after which the certificate is renewed, also if the authority suggests no window. */
  lifetimeShare: z.int(),
  /** Absent: new versions have a key as in the policy of the certificate in the vault. */
  key: KeySpec.optional(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type RenewalPolicy = z.infer<typeof RenewalPolicy>;

/** Signed, because the row decides who signs a certificate. */
export const Policies = entity(TABLE, RenewalPolicy, { signed: true });
export const policyKey = (assetId: string): string => keyText(assetId.toLowerCase());

export const isPolicyOf = ({ authorityId }: Pick<RenewalPolicy, "authorityId">, id: string): boolean =>
  authorityId === id;

/**
 * When the next renewal of a certificate starts. Another program that changes the row can start a renewal early, which the budget
 * of the authority limits, or late, which alerts report.
 */
export const Schedules = entity(
  TABLE,
  z.object({
    assetId: z.string(),
    /** Version to which the window belongs. */
    version: z.string(),
    /** Unix seconds. */
    windowStart: z.int(),
    windowEnd: z.int(),
    checkAgainAt: z.int(),
    /** Failed renewals in a row, and the time before which no other one starts. */
    failures: z.int(),
    notBefore: z.int(),
  }),
);
export const SCHEDULES = "schedules";

export const DEFAULT_LIFETIME_SHARE = 67;
