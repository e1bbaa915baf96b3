import * as z from "zod";
import type { Issuer } from "./issuers/issuer.ts";
import { ISSUER_KINDS } from "./rotation.ts";

/** API schemas of the kinds of credentials that rotations replace. */

const IssuerView = z
  .object({
    kind: z.enum(ISSUER_KINDS).meta({
      description:
        "`clientSecret`: client secrets of Entra applications. `resourceKey`: keys of Azure resources that have two keys.",
    }),
    title: z.string().meta({ description: "Name of the kind for people.", example: "Client secret of an application" }),
    canHoldTwo: z
      .boolean()
      .meta({ description: "Whether the old and the new credential can be valid at the same time." }),
    regenerates: z.boolean().meta({
      description:
        "True if a rotation replaces the value of an existing credential, which can't be undone. False if it adds a credential.",
    }),
    permissions: z
      .array(
        z
          .object({
            name: z.string().meta({ description: "Name of the permission.", example: "Application.ReadWrite.OwnedBy" }),
            purpose: z.string().meta({
              description: "Purpose of the permission.",
              example: "Add and remove client secrets (Microsoft Graph).",
            }),
            optional: z.boolean().meta({ description: "Whether rotations also work without the permission." }),
          })
          .meta({ id: "RotationIssuerPermission" }),
      )
      .meta({
        description:
          "Permissions that the service's identity needs for this kind, besides those for vaults and consumers. POST /system/permissions/check tests them.",
      }),
  })
  .meta({ id: "RotationIssuer" });

export const IssuerList = z.object({ items: z.array(IssuerView) }).meta({ id: "RotationIssuerList" });

export const issuerView = (issuer: Issuer): z.input<typeof IssuerView> => ({
  kind: issuer.kind,
  title: issuer.title,
  canHoldTwo: issuer.canHoldTwo,
  regenerates: issuer.regenerates,
  permissions: issuer.permissions.map(({ name, purpose, optional }) => ({ name, purpose, optional })),
});
