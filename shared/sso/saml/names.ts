/** We, as identity providers know us. */
export interface ServiceNames {
  entityId: string;
  /** Our assertion consumer service: where responses are sent to. */
  acsUrl: string;
}

/** Our addresses follow from our origin, which is configured. */
export const namesAt = (origin: string): ServiceNames => ({
  entityId: `${origin}/auth/sso/metadata`,
  acsUrl: `${origin}/auth/sso/callback`,
});
