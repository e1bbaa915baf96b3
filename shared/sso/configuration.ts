import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { secretReference } from "../secrets/kept-secrets.ts";

/** Everything of single sign-on but its sign-in requests stands in one partition, so that a change is one transaction. */
export const SSO = "sso";
export const CONFIGURATION_KEY = "configuration";
export const LOGINS_KEY = "logins";

const configuration = z.object({
  providerType: z.enum(["oidc", "saml"]),
  isEnabled: z.boolean(),
  oidcIssuer: z.string().optional(),
  oidcClientId: z.string().optional(),
  /** Of the client at this issuer; absent for a public client. */
  oidcClientSecret: secretReference.optional(),
  /** As an administrator says: providers tell nobody. */
  oidcClientSecretExpiresOn: z.string().optional(),
  oidcScopes: z.array(z.string()),
  /** Where browsers are sent to sign in. */
  samlEntryPoint: z.string().optional(),
  samlIdpEntityId: z.string().optional(),
  /** PEM; what the identity provider signs with, several while it goes over to another. */
  samlIdpCertificates: z.array(z.string()).optional(),
  /** Absent: Entra's object identifier, else a persistent NameID. */
  samlIdAttribute: z.string().optional(),
  samlSignRequests: z.boolean().optional(),
  /** Our own key and its certificate (PEM), as long as requests are signed: assertions may be encrypted for it as well. */
  samlServiceKey: secretReference.optional(),
  samlServiceCertificate: z.string().optional(),
  autoCreateUsers: z.boolean(),
  /** Absent: who has no role by the mapping is refused. */
  defaultRole: z.enum(ROLES).optional(),
  ssoOnlyMode: z.boolean(),
  loginButtonText: z.string(),
  /** A JSON pointer, or a claim's or attribute's name. */
  rolesClaim: z.string().optional(),
  roleMapping: z.record(z.string(), z.enum(ROLES)).optional(),
  allowedEmailDomains: z.array(z.string()).optional(),
  /** Changes with every member that decides who signs in and as what. */
  generation: z.string(),
  /** Changes with every change. */
  revision: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type SsoConfiguration = z.infer<typeof configuration>;
export type SsoConfigurationRow = Row<SsoConfiguration>;
export const Configuration = entity("Sso", configuration);

/** What stands before anybody configured anything. */
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
  total: z.number(),
  lastAt: z.string(),
  /** The generation under which an administrator signed in last. */
  administratorUnder: z.string().optional(),
});
export type LoginsRecord = z.infer<typeof logins>;
export const Logins = entity("Sso", logins);
