/** Groups of checks that several mappings name. */

/** Checks of expired secrets, wherever they are stored. */
export const EXPIRED_SECRETS = ["secret-expired", "client-secret-expired", "b2c-secret-expired"];
export const EXPIRED_KEYS = ["key-expired", "b2c-key-expired"];
/** Checks of certificates with which applications authenticate. */
export const EXPIRED_APPLICATION_CERTIFICATES = ["application-certificate-expired", "b2c-certificate-expired"];
export const EXPIRED_CERTIFICATES = ["certificate-expired", ...EXPIRED_APPLICATION_CERTIFICATES];

/** Checks of secrets that are valid, or have been in use, for too long. */
export const OLD_SECRETS = [
  "secret-validity-period",
  "secret-active-period",
  "client-secret-validity-period",
  "client-secret-validity-period-b2c",
];
export const LONG_APPLICATION_CERTIFICATES = [
  "application-certificate-validity-period",
  "application-certificate-validity-period-b2c",
];
export const OLD_KEYS = ["key-validity-period", "key-active-period"];
export const KEY_STRENGTH = ["key-type", "key-rsa-size", "key-curve"];
export const CERTIFICATE_STRENGTH = ["certificate-rsa-size", "certificate-curve"];

/** Checks that an expiration date is set. */
export const SECRET_EXPIRY_SET = ["secret-expiry-set-rbac", "secret-expiry-set-access-policy"];
export const KEY_EXPIRY_SET = ["key-expiry-set-rbac", "key-expiry-set-access-policy"];
/** Checks of a better way to sign in that an application already has. */
export const BETTER_SIGN_IN = ["client-secret-beside-certificate", "client-secret-beside-federation"];
/** Checks that the objects of a vault can be recovered. */
export const RECOVERABLE = ["vault-soft-delete", "vault-purge-protection"];
/** Checks of access to a vault over the network. */
export const NETWORK_ACCESS = ["vault-firewall", "vault-public-access", "vault-private-endpoint"];
