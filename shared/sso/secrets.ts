import type { SecretsGroup, StoredSecrets } from "../secrets/stored-secrets.ts";
import { SSO } from "./configuration.ts";

/** The purpose to which the service's own SAML key is bound. The key is not sent anywhere. */
export const SERVICE_KEY_USE = "saml";

/** The stored secrets of single sign-on: the client secret, bound to its issuer, and the service's own SAML key. */
export type SsoSecrets = StoredSecrets;

/** How the secrets of single sign-on are stored in the service's key vault. */
export const SSO_SECRETS: SecretsGroup = {
  what: "Secrets of single sign-on",
  table: "Sso",
  partitionKey: SSO,
  namePrefix: "sso",
  contentType: "application/vnd.credential-lifecycle.sso-secret",
  removed: { type: "sso.secretRemoved", target: { type: "sso", id: "secret" } },
};
