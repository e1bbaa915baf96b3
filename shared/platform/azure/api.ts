import * as z from "zod";
import type { IdentityDescription } from "./identity.ts";

/** The service's own identity as `GET /identity` returns it. */

export const IdentityView = z
  .object({
    credentialType: z
      .enum(["clientSecret", "managedIdentity", "developerSignIn"])
      .meta({ description: "How the service authenticates to Azure." }),
    tenantId: z.string().nullable(),
    clientId: z.string().nullable(),
    objectId: z.string().nullable().meta({ description: "Object ID that role assignments use." }),
    name: z.string().nullable(),
    cloud: z.string().meta({ description: "Azure cloud." }),
    authorityHost: z.string().meta({ description: "Source of the access token." }),
    tokenExpiresAt: z.iso.datetime().meta({ description: "Expiry time of the current token." }),
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
