import { randomUUID } from "node:crypto";
import { hs256, type Members, rs256, type SigningKey, unsigned } from "../jwt.ts";

/** Changes to a correct logout token. */
export interface LogoutTokenChange {
  /** Creates the header from the correct header. */
  header?: (header: Members) => Members;
  /** Creates the claims from the correct claims. */
  claims?: (claims: Members) => Members;
  /** Signs with something other than the provider's key. `foreignKey` uses an unpublished key under the provider's key ID. */
  signature?: "none" | "clientSecretHmac" | "foreignKey";
}

/**
 * Returns a logout token: OpenID Connect Back-Channel Logout 1.0, section 2.4.
 *
 * @param session - `sub`, `sid` or both.
 * @param keys - The provider's key, an unpublished key, and the secret of the client.
 */
export function logoutToken(
  { issuer, clientId }: { issuer: string; clientId: string },
  session: { sub?: string; sid?: string },
  keys: { key: SigningKey; foreignKey: SigningKey; clientSecret: string },
  change: LogoutTokenChange,
): string {
  const { header: changeHeader = unchanged, claims: changeClaims = unchanged, signature } = change;
  const now = Math.floor(Date.now() / 1000);
  const header = changeHeader({ typ: "logout+jwt", kid: keys.key.id });
  const claims = changeClaims({
    iss: issuer,
    aud: clientId,
    iat: now,
    exp: now + 120,
    jti: randomUUID(),
    events: { "http://schemas.openid.net/event/backchannel-logout": {} },
    ...session,
  });
  switch (signature) {
    case "none":
      return unsigned(header, claims);
    case "clientSecretHmac":
      return hs256(header, claims, keys.clientSecret);
    case "foreignKey":
      return rs256(header, claims, { ...keys.foreignKey, id: keys.key.id });
    case undefined:
      return rs256(header, claims, keys.key);
  }
}

const unchanged = (members: Members): Members => members;
