import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { secretReference } from "../secrets/stored-secrets.ts";

/** Table of all rows of this module. Row keys are in `rows.ts`. */
export const TABLE = "CertificateRenewals";
export const AUTHORITIES = "authorities";

/**
 * A certificate authority and the service's account there. The keys of the account and of the external account binding are
 * secrets in the service's own key vault. The row has only references to them.
 */
export const AuthorityRecord = z.object({
  authorityId: z.string(),
  name: z.string(),
  directoryUrl: z.string(),
  contacts: z.array(z.string()),
  /** Identifier that the authority gave for the external account binding. */
  bindingKeyId: z.string().optional(),
  bindingKey: secretReference.optional(),
  preferredChain: z.string().optional(),
  profile: z.string().optional(),
  /** Budget: certificates for one registered domain within `budgetDays`. */
  certificatesPerDomain: z.int(),
  budgetDays: z.int(),
  accountKey: secretReference,
  accountUrl: z.string(),
  createdAt: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type AuthorityRecord = z.infer<typeof AuthorityRecord>;

/** Signed, because the row decides who signs certificates of the company. */
export const AuthorityRows = entity(TABLE, AuthorityRecord, { signed: true });

/**
 * Default budget, below the limit of Let's Encrypt (50 certificates in 7 days):
 * https://letsencrypt.org/docs/rate-limits/#new-certificates-per-registered-domain
 */
export const DEFAULT_BUDGET = { certificatesPerDomain: 40, budgetDays: 7 };
