import * as z from "zod";
import type { IdentityDescription } from "./identity.ts";

/** The service's own identity as the API shows it. */

export const IdentityView = z
  .object({
    credentialType: z
      .enum(["clientSecret", "managedIdentity", "developerSignIn"])
      .meta({ description: "How the service signs in to the cloud." }),
    tenantId: z.string().nullable(),
    clientId: z.string().nullable(),
    objectId: z.string().nullable().meta({ description: "What role assignments name." }),
    name: z.string().nullable(),
    cloud: z.string().meta({ description: "Which Azure cloud." }),
    authorityHost: z.string().meta({ description: "Where its tokens come from." }),
    tokenExpiresAt: z.iso.datetime().meta({ description: "When the token that was looked at ends." }),
  })
  .meta({ id: "Identity" });

export const identityView = ({
  tenantId,
  clientId,
  objectId,
  name,
  ...rest
}: IdentityDescription): z.infer<typeof IdentityView> => ({
  credentialType: rest.credentialType,
  tenantId: tenantId ?? null,
  clientId: clientId ?? null,
  objectId: objectId ?? null,
  name: name ?? null,
  cloud: rest.cloud,
  authorityHost: rest.authorityHost,
  tokenExpiresAt: rest.tokenExpiresAt,
});
