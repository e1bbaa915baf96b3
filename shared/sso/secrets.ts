import type { KeptSecrets, SecretsOwner } from "../secrets/kept-secrets.ts";
import { SSO } from "./configuration.ts";

/** The use of our own key for SAML, which is sent nowhere. */
export const SERVICE_KEY_USE = "saml";

/** The client's secret, for the issuer it is sent to, and our own key for SAML. */
export type SsoSecrets = KeptSecrets;

export const SSO_SECRETS: SecretsOwner = {
  what: "Secrets of single sign-on",
  table: "Sso",
  partitionKey: SSO,
  namePrefix: "sso",
  contentType: "application/vnd.credential-lifecycle.sso-secret",
  removed: { type: "sso.secretRemoved", target: { type: "sso", id: "secret" } },
};
