/** Entity id of this service. */
export interface ServiceNames {
  entityId: string;
  /** Assertion consumer service of this service, to which responses are sent. */
  acsUrl: string;
}

/** Names and addresses of this service for SAML. They are based on the configured origin. */
export const serviceNamesAt = (origin: string): ServiceNames => ({
  entityId: `${origin}/auth/sso/metadata`,
  acsUrl: `${origin}/auth/sso/callback`,
});
