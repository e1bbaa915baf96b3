/** The names by which identity providers know this service. */
export interface ServiceNames {
  /** Entity id of this service: the URL of its metadata. */
  entityId: string;
  /** Assertion consumer service of this service, to which responses are sent. */
  acsUrl: string;
  /** Single logout service of this service, to which logout messages are sent. */
  logoutUrl: string;
}

/** Returns the SAML names of this service for its configured origin. */
export const serviceNamesAt = (origin: string): ServiceNames => ({
  entityId: `${origin}/auth/sso/metadata`,
  acsUrl: `${origin}/auth/sso/callback`,
  logoutUrl: `${origin}/auth/sso/logout`,
});
