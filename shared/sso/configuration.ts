import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { secretReference } from "../secrets/stored-secrets.ts";

// The stored configuration of single sign-on and the count of its sign-ins.

/**
 * Partition of the configuration, the counts and the tracking rows of the secrets (`secret|` and the secret's ID), so that a
 * change is one transaction.
 */
export const SSO = "sso";
export const CONFIGURATION_KEY = "configuration";
export const LOGINS_KEY = "logins";

const configuration = z.object({
  providerType: z.enum(["oidc", "saml"]),
  isEnabled: z.boolean(),
  oidcIssuer: z.string().optional(),
  oidcClientId: z.string().optional(),
  /** Reference of the client secret for this issuer. Absent for a public client. */
  oidcClientSecret: secretReference.optional(),
  /** Entered by an administrator, because providers don't publish it. */
  oidcClientSecretExpiresOn: z.string().optional(),
  oidcScopes: z.array(z.string()),
  /** Sign-in URL of the identity provider, to which browsers are redirected. */
  samlEntryPoint: z.string().optional(),
  /** Single logout URL of the provider, to which browsers are redirected. */
  samlLogoutUrl: z.string().optional(),
  samlIdpEntityId: z.string().optional(),
  /** Signing certificates of the identity provider, PEM. Several during a rollover. */
  samlIdpCertificates: z.array(z.string()).optional(),
  /** The attribute that identifies a person. Absent: Entra's object identifier, else a persistent NameID. */
  samlIdAttribute: z.string().optional(),
  samlSignRequests: z.boolean().optional(),
  /** The service's own key and its certificate (PEM), while requests are signed. Assertions may also be encrypted for it. */
  samlServiceKey: secretReference.optional(),
  samlServiceCertificate: z.string().optional(),
  autoCreateUsers: z.boolean(),
  /** Role of people to whom the mapping gives no role. Absent: they can't sign in. */
  defaultRole: z.enum(ROLES).optional(),
  ssoOnlyMode: z.boolean(),
  loginButtonText: z.string(),
  /** A JSON pointer, or the name of a claim or attribute. */
  rolesClaim: z.string().optional(),
  roleMapping: z.record(z.string(), z.enum(ROLES)).optional(),
  allowedEmailDomains: z.array(z.string()).optional(),
  /**
   * Gets a new value when a member changes that decides who can sign in or with which role. Invalidates sign-ins in progress.
   */
  generation: z.string(),
  /** Gets a new value with each change. It is the ETag in the API. */
  revision: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
/** The stored configuration of single sign-on. */
export type SsoConfiguration = z.infer<typeof configuration>;
export type SsoConfigurationRow = Row<SsoConfiguration>;
/**
 * Signed and listed, so that the service does not use a row that was changed, removed or replaced by an older state outside of
 * it. `adopted`: unsigned rows of earlier versions are accepted until this version has signed them.
 */
export const Configuration = entity("Sso", configuration, { signed: "adopted", listed: true });

/** The configuration before an administrator saves one. */
export const UNCONFIGURED: SsoConfiguration = {
  providerType: "oidc",
  isEnabled: false,
  oidcScopes: ["openid", "profile", "email"],
  autoCreateUsers: false,
  defaultRole: "user",
  ssoOnlyMode: false,
  loginButtonText: "Sign in with single sign-on",
  generation: "none",
  revision: "none",
  updatedAt: new Date(0).toISOString(),
  updatedBy: "system",
};

const logins = z.object({
  /** Number of sign-ins, and the time of the last one. */
  total: z.number(),
  lastAt: z.string(),
  /**
   * The generation of the configuration with which an administrator last signed in. Passwords can be turned off only if it is
   * the current one.
   */
  administratorUnder: z.string().optional(),
});
export type LoginsRecord = z.infer<typeof logins>;
/** The row with the number of sign-ins. */
export const Logins = entity("Sso", logins);
